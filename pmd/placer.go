package pmd

import "sync/atomic"

// Placement selects where a driver copies the payload of a packet.
type Placement uint8

// The values of Placement.
const (
	PlaceInFrames Placement = iota // receive the packet into frames, as any other
	PlaceDirect                    // receive the payload into the pieces that Place returned
	PlaceLater                     // not in this burst: end it, and ask again
	PlaceExternal                  // leave the payload with the driver (packet.Arena.External): the packet is decided in this iteration
)

// A PlaceFunc finds memory for the payload of a large packet before it is received (direct data placement), so
// that it is copied once: to the reader or to the receive buffer of its connection, and not into frames first. head
// borrows the first bytes of the packet, from the Ethernet header on, and size is the length of all of it.
// With PlaceDirect the first headers bytes go to a frame, and the rest into pieces, which hold just that. With
// PlaceExternal the driver chooses both; one that has no memory for it uses frames.
// The pieces are lent until the batch has been handled.
type PlaceFunc func(head []byte, size int) (p Placement, headers int, pieces [][]byte)

// Placer attaches a PlaceFunc to a driver that can place payload. The driver reports it in Info.Placer. A wrapper that
// keeps, copies or delays packets must not pass it on: the payload would be missing there.
type Placer struct{ place atomic.Pointer[PlaceFunc] }

// Attach makes the driver call f, in Rx. nil detaches.
func (p *Placer) Attach(f PlaceFunc) {
	if f == nil {
		p.place.Store(nil)
		return
	}
	p.place.Store(&f)
}

// Place calls the function that is attached. Without one the packet goes into frames.
func (p *Placer) Place(head []byte, size int) (Placement, int, [][]byte) {
	if f := p.place.Load(); f != nil {
		return (*f)(head, size)
	}
	return PlaceInFrames, 0, nil
}

// RxPlaced counts the payload of a packet that was placed, besides its headers.
func (c *Counters) RxPlaced(n int) { c.RxBytes.Add(uint64(n)) }

// TxExternal counts the external payload of a packet that was sent, besides what is in frames.
func (c *Counters) TxExternal(n int) { c.TxBytes.Add(uint64(n)) }
