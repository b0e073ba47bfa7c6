# Linear mixed models of the words in words.csv; every model's surprisals against the baseline without them.
# With participants.csv beside it (columns of the keys, participant, time) the times are those of single readers.
# install.packages("lme4")
library(lme4)

keys <- @KEYS@
baseline <- @BASELINE@
models <- list(
  @MODELS@
)

words <- read.csv("words.csv")
random <- "(1 | fold)"
if (file.exists("participants.csv")) {
  words$time <- NULL
  words <- merge(words, read.csv("participants.csv"), by = keys)
  random <- c(random, "(1 | participant)")
}
numbers <- unique(c(baseline, unlist(models)))
words[baseline] <- scale(words[baseline]) # surprisals stay in bits, so that slopes are ms a bit

without <- lmer(reformulate(c(baseline, random), "time"), words, REML = FALSE)
for (name in names(models)) {
  with <- lmer(reformulate(c(baseline, models[[name]], random), "time"), words, REML = FALSE)
  cat("\n", name, "\n", sep = "")
  print(anova(without, with))
  print(summary(with)$coefficients[models[[name]], ])
}
