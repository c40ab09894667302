package tcp

import "github.com/millrace/millrace/wire"

// The local ports that are chosen for connections: as many as can be, without those that services are
// usually given (RFC 6056 3.2).
const (
	firstPort = 16384
	lastPort  = 65535
	ports     = lastPort - firstPort + 1
)

// portChooser chooses local ports by double hashing (RFC 6056 3.3.4): a secret offset for each
// destination, and counters that are shared by few destinations. Connections to one destination go
// through all ports before one comes again, and those of others show nothing of it.
type portChooser struct {
	key    sipKey
	counts [256]uint32
}

// choose sets t.LocalPort to a port for which suitable is true, and reports whether there is one.
func (p *portChooser) choose(t *wire.Tuple, suitable func(*wire.Tuple) bool) bool {
	t.LocalPort = 0
	h := p.key.tuple(t, 0)
	count := &p.counts[h>>56]
	offset := uint32(h)
	for range ports {
		*count++
		t.LocalPort = firstPort + uint16((offset+*count)%ports)
		if suitable(t) {
			return true
		}
	}
	t.LocalPort = 0
	return false
}
