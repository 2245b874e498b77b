# SPDX-License-Identifier: Apache-2.0
"""Makes and compares arrays."""
import numpy as np


def decibels(found, expected):
    """Returns the signal-to-noise ratio in dB: at most 200, so that equal arrays have a finite value, and -inf where something is not finite."""
    expected = np.asarray(expected, np.float64)
    noise, signal = ((np.asarray(found, np.float64).reshape(expected.shape) - expected) ** 2).sum(), (expected ** 2).sum()
    if noise == 0 or not np.isfinite(noise):
        return 200.0 if noise == 0 else -np.inf
    return float(min(200.0, 10 * np.log10(max(signal, 1e-300) / max(noise, 1e-20 * signal))))


def difference(found, expected):
    """Returns the largest difference as a share of the largest value."""
    return np.abs(found.astype(np.float64) - expected).max() / np.abs(expected).max()


def close(found, expected, tolerance=1e-5):
    return found.shape == expected.shape and bool(np.abs(found.astype(np.float64) - expected).max() <= tolerance * np.abs(expected).max())


def same_bits(a, b):
    """Compares value by value: the signs of zeros count, and NaN equals NaN."""
    bits = f"u{a.itemsize}"
    return (a.view(bits) == b.view(bits)) | (np.isnan(a) & np.isnan(b))


def same(a, b):
    """Is true for the same type, shape and bits; NaN equals NaN."""
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    return a.shape == b.shape and a.dtype == b.dtype and bool(np.all(same_bits(a, b)))


def of_many_magnitudes(shape, seed=1):
    """Returns numbers of many magnitudes, with zeros, subnormals and special values among them."""
    random = np.random.default_rng(seed)
    x = (random.standard_normal(shape) * np.exp2(random.integers(-12, 9, shape))).astype(np.float32)
    flat = x.reshape(-1)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42, -3e-39, 3.4e38, 448, 0.4375], np.float32)
    if flat.size >= 400:
        flat[random.choice(flat.size, special.size, replace=False)] = special
    return x
