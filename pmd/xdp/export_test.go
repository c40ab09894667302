package xdp

// OnStep has f called between the steps of an update.
func OnStep(f func(string)) { step = f }
