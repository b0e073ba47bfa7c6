# Generalised additive models of the words in words.csv: is the effect of surprisal a straight line?
library(mgcv)

baseline <- @BASELINE@
models <- list(
  @MODELS@
)

words <- read.csv("words.csv")
words$fold <- factor(words$fold)
words[baseline] <- scale(words[baseline])
random <- "s(fold, bs = 're')"

for (name in names(models)) {
  curves <- sprintf("s(%s, k = 6)", models[[name]])
  line <- gam(reformulate(c(baseline, models[[name]], random), "time"), data = words, method = "ML")
  curve <- gam(reformulate(c(baseline, curves, random), "time"), data = words, method = "ML")
  cat("\n", name, "\n", sep = "")
  print(anova(line, curve, test = "F"))
  print(AIC(line, curve))
  print(summary(curve)$s.table)
}
