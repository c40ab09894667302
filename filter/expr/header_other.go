//go:build !amd64 || purego

package expr

import "github.com/millrace/millrace/packet"

// decide has no form for this processor.
func (h *headerTable) decide(*packet.Arena, []packet.Desc, []uint8) (whole, ok bool) {
	return false, false
}
