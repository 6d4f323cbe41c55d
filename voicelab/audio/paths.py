"""Optimal paths by dynamic programming: pitch tracks (Viterbi) and time alignment (DTW), equal to those of librosa."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_Floats = npt.NDArray[np.float64]
_Indices = npt.NDArray[np.intp]
_TINY = np.finfo(np.float64).tiny


def warping_path(x: _Floats, y: _Floats) -> _Indices:
    """Align two sequences by dynamic time warping (Sakoe & Chiba 1978) with steps (1,1), (0,1), (1,0).

    Args:
        x: vectors (size, frames), compared with those of `y` by Euclidean distance.
        y: vectors (size, frames).

    Returns:
        Frame indices (steps, 2) of x and y, from the first frames to the last.
    """
    from scipy.spatial.distance import cdist

    cost = cdist(x.T, y.T)
    rows, columns = cost.shape
    step = np.empty(cost.shape, np.int8)
    # Anti-diagonals of the accumulated cost, by row; index 0 represents the row before the first.
    costs_2_back, costs_1_back = np.full(rows + 1, np.inf), np.full(rows + 1, np.inf)
    costs_2_back[0] = 0.0
    for diagonal in range(rows + columns - 1):
        row = np.arange(max(0, diagonal - columns + 1), min(rows, diagonal + 1))
        choices = np.stack((costs_2_back[row], costs_1_back[row + 1], costs_1_back[row]))  # of equal costs, the first
        step[row, diagonal - row] = choices.argmin(axis=0)
        costs_2_back, costs_1_back = costs_1_back, np.full(rows + 1, np.inf)
        costs_1_back[row + 1] = choices.min(axis=0) + cost[row, diagonal - row]
    path = [(rows - 1, columns - 1)]
    while path[-1] != (0, 0):
        i, j = path[-1]
        path.append((i - (step[i, j] != 1), j - (step[i, j] != 2)))
    return np.array(path[::-1], np.intp)


def voiced_track(probabilities: _Floats, width: int, switch: float) -> _Indices:
    """Find the most probable pitch track, including voicing, by Viterbi's algorithm.

    Args:
        probabilities: (frames, bins) probabilities of pitches; 1 minus their sum is the probability that a frame is
            unvoiced.
        width: odd number of bins that a transition can reach; their probabilities decrease linearly with the distance.
        switch: probability that voicing changes from one frame to the next.

    Returns:
        Bin of each frame (frames,); -1 if it is unvoiced.
    """
    bins, half = probabilities.shape[1], width // 2
    voiced = np.clip(probabilities.sum(axis=1, keepdims=True), 0, 1)
    unvoiced = np.broadcast_to((1 - voiced) / bins, probabilities.shape)
    log_probabilities = np.log(np.stack((probabilities, unvoiced), axis=1) + _TINY)  # (frames, voicing, bins)
    source = np.arange(bins)[:, None] + np.arange(-half, half + 1)
    reached = (source >= 0) & (source < bins)
    weights = np.where(reached, half + 1.0 - np.abs(np.arange(-half, half + 1)), 0.0)
    # The probabilities of a source sum to 1, also at the borders, where it reaches fewer bins.
    local = weights / weights.sum(axis=1)[np.clip(source, 0, bins - 1)]
    stay = np.array([[1 - switch, switch], [switch, 1 - switch]])
    log_local = np.log(stay[:, None, :, None] * local[:, None] + _TINY)  # (voicing, bin, voicing before, source)
    value = log_probabilities[0] - np.log(2 * bins)
    padded = np.full((2, bins + 2 * half), -np.inf)
    came_from = np.empty((len(probabilities), 2 * bins), np.intp)
    for frame in range(1, len(probabilities)):
        padded[:, half : half + bins] = value
        windows = np.lib.stride_tricks.sliding_window_view(padded, width, axis=1).swapaxes(0, 1)
        sums = (windows + log_local).reshape(2 * bins, -1)
        choice = sums.argmax(axis=1)
        best = sums[np.arange(2 * bins), choice]
        state = choice // width * bins + np.tile(np.arange(bins), 2) + choice % width - half
        # A jump to any other bin has the smallest probability that a float represents.
        jump = value.max() + np.log(_TINY)
        came_from[frame] = np.where(best < jump, value.argmax(), state)
        value = log_probabilities[frame] + np.maximum(best, jump).reshape(2, bins)
    states = [int(value.argmax())]
    for previous in came_from[:0:-1]:
        states.append(int(previous[states[-1]]))
    track = np.array(states[::-1], np.intp)
    return np.where(track < bins, track, -1)
