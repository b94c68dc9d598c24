"""Speech: one-frame-ahead prediction of spectra (section 5.2): corpora, features, baselines, scores."""
