"""In: nothing. Out: `SCRIPTS`, what each peer's interpreter runs for `time_to_quality`: its own loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Each script gets a folder of .npy files, seconds of budget, the number of marks, the window and a JSON list of
# configurations. For each configuration it trains, copying the weights at the marks, predicts the rows of the curve
# with each copy, says so on stdout, reads from stdin which copies shall predict all scored rows, and does. Whatever
# the peer prints goes to stderr. Loading, setting up and predicting lie outside the clock.
_BEGIN = """
import json, os, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np
import torch
torch.set_num_threads(os.cpu_count())
says = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)
folder, budget, marks, window = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
configurations = json.loads(sys.argv[5])
x, y, symbol, ts, train, score, curve = (
    np.load(os.path.join(folder, name + ".npy")) for name in ("x", "y", "symbol", "ts", "train", "score", "curve"))

class Over(Exception):
    pass

class Marks:
    def __init__(self, network):
        self.network, self.seen, self.weights = network, [], []
        self.labels = self.steps = self.gone = 0

    def begin(self):
        self.start = time.perf_counter()

    def step(self, labels):
        self.labels, self.steps = self.labels + labels, self.steps + 1
        seconds = time.perf_counter() - self.start
        if int(seconds / budget * marks) > self.gone:
            self.gone = int(seconds / budget * marks)
            self.seen.append([seconds, self.steps, self.labels])
            self.weights.append({name: kept.clone() for name, kept in self.network.state_dict().items()})
        return seconds >= budget

    def report(self, number, predict):
        def save(name, spots, mask):
            found = []
            for spot in spots:
                self.network.load_state_dict(self.weights[spot])
                self.network.eval()
                with torch.no_grad():
                    found.append(predict(np.flatnonzero(mask)))
            path = os.path.join(folder, f"{name}_{number}.npy")
            np.save(path, np.array(found, dtype=np.float32), allow_pickle=False)
            return path
        says.write(json.dumps({"marks": self.seen, "path": save("curve", range(len(self.seen)), curve)}) + "\\n")
        says.write(json.dumps({"path": save("full", json.loads(sys.stdin.readline()), score)}) + "\\n")
"""

_QLIB = (
    _BEGIN
    + """
import pandas as pd
from torch.utils.data import DataLoader
from qlib.contrib.model.pytorch_lstm_ts import LSTM
from qlib.data.dataset import TSDatasetH
from qlib.data.dataset.handler import DataHandlerLP
from qlib.data.dataset.loader import StaticDataLoader
from qlib.model.utils import ConcatDataset

stamps = pd.to_datetime(ts, unit="us")
index = pd.MultiIndex.from_arrays([stamps, symbol], names=["datetime", "instrument"])
names = [("feature", f"f{spot:02d}") for spot in range(x.shape[1])] + [("label", "y"), ("asked", "is")]
values = np.column_stack([x, y, (train | score).astype(np.float32)])
frame = pd.DataFrame(values, index=index, columns=pd.MultiIndex.from_tuples(names)).sort_index()
place = pd.Series(np.arange(len(ts)), index=index)
handler = DataHandlerLP(data_loader=StaticDataLoader(frame))
segments = {"train": (stamps[train].min(), stamps[train].max()), "test": (stamps[score].min(), stamps[score].max())}
dataset = TSDatasetH(handler=handler, segments=segments, step_len=window, flt_col="asked")
learn = dataset.prepare("train", col_set=["feature", "label"], data_key=DataHandlerLP.DK_L)
learn.config(fillna_type="ffill+bfill")
ask = dataset.prepare("test", col_set=["feature", "label"], data_key=DataHandlerLP.DK_I)
ask.config(fillna_type="ffill+bfill")
assert len(learn) == train.sum(), (len(learn), int(train.sum()))
spot_of = np.full(len(ts), -1)
spot_of[place.reindex(ask.get_index()).to_numpy()] = np.arange(len(ask))
assert (spot_of[score] >= 0).all()

def race(number, given):
    # The lines of `fit` up to its first epoch; `fit` itself scores all training rows after each and cannot be stopped.
    model = LSTM(d_feat=x.shape[1], hidden_size=256, num_layers=3, n_jobs=0, GPU=-1, seed=7, **given)
    loader = DataLoader(ConcatDataset(learn, np.ones(len(learn))), batch_size=model.batch_size, shuffle=True,
                        num_workers=model.n_jobs, drop_last=True)
    kept = Marks(model.LSTM_model)

    def watched():
        for data, weight in loader:
            yield data, weight
            if kept.step(len(data)):
                raise Over

    def predict(rows):
        found = []
        for some in np.array_split(spot_of[rows], -(-len(rows) // 1024)):
            found.append(model.LSTM_model(torch.from_numpy(ask[list(some)][:, :, :-1]).float()).numpy())
        return np.concatenate(found)

    kept.begin()
    try:
        while True:
            model.train_epoch(watched())
    except Over:
        pass
    kept.report(number, predict)

for number, given in enumerate(configurations):
    race(number, given)
"""
)

# A row's label becomes the series' value one row later, so that its "forecast" one step ahead is our prediction; past
# values are excluded from the inputs, which leaves the 50 features.
_NEURALFORECAST = (
    _BEGIN
    + """
import logging
import pandas as pd
from pytorch_lightning.callbacks import Callback
from neuralforecast.losses.pytorch import MSE
from neuralforecast.models import LSTM
from neuralforecast.tsdataset import TimeSeriesDataset

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
fresh = np.r_[True, symbol[1:] != symbol[:-1]]
later = np.r_[0.0, y[:-1]] * ~fresh
wanted = np.r_[False, train[:-1]] & ~fresh
upto = ts <= ts[wanted].max()
names = [f"f{spot:02d}" for spot in range(x.shape[1])]
temporal = np.column_stack([later, x, wanted])[upto].astype(np.float32)
starts = np.flatnonzero(fresh[upto])
dataset = TimeSeriesDataset(temporal, pd.Index(["y", *names, "available_mask"]), np.r_[starts, len(temporal)], y_idx=0)
past = np.arange(1 - window, 1)

def race(number, given):
    class Watch(Callback):
        def on_train_start(self, trainer, model):
            kept.begin()
        def on_train_batch_end(self, trainer, model, outputs, batch, batch_idx):
            if kept.step(model.windows_batch_size):
                trainer.should_stop = True

    model = LSTM(
        h=1, input_size=window, hist_exog_list=names, exclude_insample_y=True, encoder_hidden_size=256,
        encoder_n_layers=3, loss=MSE(), scaler_type="identity", max_steps=10**9, random_seed=7, accelerator="cpu",
        callbacks=[Watch()], logger=False, enable_progress_bar=False, enable_model_summary=False,
        enable_checkpointing=False, **given)
    kept = Marks(model)
    model.fit(dataset)

    def predict(rows):
        found = []
        for some in np.array_split(rows, -(-len(rows) // 1024)):
            exog = torch.from_numpy(x[some[:, None] + past])
            batch = {"insample_y": torch.zeros(len(some), window, 1), "hist_exog": exog, "futr_exog": None,
                     "stat_exog": None}
            found.append(model(batch)[:, -1, 0].numpy())
        return np.concatenate(found)

    kept.report(number, predict)

for number, given in enumerate(configurations):
    race(number, given)
"""
)

SCRIPTS: Final[Mapping[str, str]] = {"pyqlib": _QLIB, "neuralforecast": _NEURALFORECAST}
