"""Turn replica-predictors.csv into one pickle a model, as REPLICA reads it: pip install replicaverse

load_outputs_for_tag(tag, local_path=f"{tag}.pkl") of replica.predictors gives {stimulus: [outputs of its units]}.
"""

import csv
import math
import pickle
from collections import defaultdict

from replica.feature.core.protocols import FeatureModelOutput

cells = defaultdict(lambda: defaultdict(dict))
with open("replica-predictors.csv", encoding="utf-8", newline="") as file:
    for row in csv.DictReader(file):
        cells[row["tag"]][row["stimulus_id"]][int(row["unit_index"])] = float(row["value"])
for tag, stimuli in cells.items():
    outputs = {
        stimulus: [FeatureModelOutput({"log_p_observed": units.get(i, math.nan)}) for i in range(max(units) + 1)]
        for stimulus, units in stimuli.items()
    }
    with open(f"{tag}.pkl", "wb") as file:
        pickle.dump(outputs, file)
    print(f"{tag}.pkl: {len(outputs)} stimuli")
