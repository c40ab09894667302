package symmetric

// Switch points, constants of an H200 beside 16 processors of a Xeon: nothing measures them on other machines. By the figures of
// bench/results/gpu-h200.json all cores do texts that have to be copied sooner, whatever their number, and by those of
// bench/results/symmetric-h200.json ciphers in place too, but for records of 16 KB, where both are even. Hashes in place take the
// device less time in calls of 256 MB, the smallest that was measured, of texts that are not short.
const (
	leastInPlace = 256_000_000 // bytes of a call
	meanInPlace  = 1 << 10     // bytes of a text, the mean of the call
)

// pays reports whether the device gets a call of so many texts and bytes.
func (e *Engine) pays(k *kernel, at where, texts, bytes int) bool {
	switch {
	case at.resident: // cores cannot reach it
		return true
	case e.cfg.Least > 0:
		return bytes >= e.cfg.Least
	}
	return k == &kernelSHA256 && at.ptr != 0 && bytes >= leastInPlace && bytes >= meanInPlace*texts
}
