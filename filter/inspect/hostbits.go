package inspect

// HostBits are the bits that rules set on addresses (xbits), with the times at which they expire. Engines may share them: then
// the order of packets that different engines have at the same time is that of chance.
type HostBits struct {
	guard Guard // nil for those of one engine
	until map[bitKey]int64
}

// Guard is a lock of the caller, such as a sync.Mutex.
type Guard interface {
	Lock()
	Unlock()
}

// maxHostBits bounds the bits of addresses; above it an early one makes room.
const maxHostBits = 1 << 18

// NewHostBits returns bits of which none is set. Engines on several goroutines need a guard.
func NewHostBits(guard Guard) *HostBits { return &HostBits{guard, map[bitKey]int64{}} }

func (h *HostBits) lock() {
	if h.guard != nil {
		h.guard.Lock()
	}
}

func (h *HostBits) unlock() {
	if h.guard != nil {
		h.guard.Unlock()
	}
}

func (h *HostBits) has(k bitKey, now int64) bool {
	h.lock()
	defer h.unlock()
	until, ok := h.until[k]
	return ok && now < until
}

func (h *HostBits) set(k bitKey, until int64) {
	h.lock()
	defer h.unlock()
	if len(h.until) >= maxHostBits {
		delete(h.until, earliest(h.until, func(until int64) int64 { return until }))
	}
	h.until[k] = until
}

func (h *HostBits) unset(k bitKey) {
	h.lock()
	defer h.unlock()
	delete(h.until, k)
}
