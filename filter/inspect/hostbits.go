package inspect

import "sync"

// HostBits are the bits that rules set on addresses (xbits), with the times at which they expire. Engines may share them: then
// the order of packets that different engines have at the same time is that of chance.
type HostBits struct {
	mu    sync.Mutex
	until map[bitKey]int64
}

// maxHostBits bounds the bits of addresses; above it an early one makes room.
const maxHostBits = 1 << 18

// NewHostBits returns bits of which none is set.
func NewHostBits() *HostBits { return &HostBits{until: map[bitKey]int64{}} }

func (h *HostBits) has(k bitKey, now int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	until, ok := h.until[k]
	return ok && now < until
}

func (h *HostBits) set(k bitKey, until int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.until) >= maxHostBits {
		delete(h.until, earliest(h.until, func(until int64) int64 { return until }))
	}
	h.until[k] = until
}

func (h *HostBits) unset(k bitKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.until, k)
}
