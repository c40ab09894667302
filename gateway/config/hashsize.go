package config

// hashSizes are the table sizes that `hash_size: auto` chooses from: few and far between, so that a
// service rarely outgrows its own, which moves nearly all of its flows that no table knows.
var hashSizes = [...]int{1021, 8191, 65537, 524287}

// Slots of a table: this many for each backend keep what moves when one leaves near the least that
// can (Maglev, NSDI 2016, 5.3), and for the one with the smallest weight keep its share near that
// weight.
const (
	slotsEach     = 100
	slotsSmallest = 8
)

// autoHashSize returns the size for the backends of a configuration, whatever their states, so that
// gateways with that configuration agree.
func autoHashSize(backends []Backend) int {
	sum, least := 0, MaxWeight
	for _, b := range backends {
		sum += b.Weight
		if b.Weight > 0 {
			least = min(least, b.Weight)
		}
	}
	need := max(slotsEach*len(backends), slotsSmallest*sum/least)
	for _, size := range hashSizes {
		if size >= need {
			return size
		}
	}
	return hashSizes[len(hashSizes)-1]
}
