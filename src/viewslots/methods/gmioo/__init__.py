"""GMIOO (Yuan, Li and Xue, ICML 2019): objects with complete shapes, found one after another in single pictures."""
