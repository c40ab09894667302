package stack

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/packet"
)

// Errors of Send.
var (
	ErrPort    = errors.New("no such port")
	ErrNoFrame = errors.New("no frame is free")
	ErrTooLong = errors.New("packet is longer than a frame")
)

// Send transmits a packet that no packet caused, such as a gratuitous ARP: it copies frame, from the
// Ethernet header on, to a frame of the pool and puts it behind what waits for the port already. It
// is counted as Originated. Nil does not say that it left: it may still be dropped and counted, as a
// forwarded one is. It belongs to the loop's thread: call it from a Handler or within Do.
func (l *Loop) Send(port uint8, frame []byte) error {
	if int(port) >= len(l.ports) {
		return fmt.Errorf("send: %w: %d of %d", ErrPort, port, len(l.ports))
	}
	if most := l.cfg.Pool.Arena().FrameSize(); len(frame) > most {
		return fmt.Errorf("send: %w: %d of %d bytes", ErrTooLong, len(frame), most)
	}
	off, ok := l.cfg.Pool.Get()
	if !ok {
		return fmt.Errorf("send: %w", ErrNoFrame)
	}
	d := [1]packet.Desc{{Off: off, Len: uint16(len(frame)), Port: port, Stamp: uint32(l.now), Verdict: packet.Forward}}
	copy(l.cfg.Pool.Arena().View().Bytes(&d[0]), frame)
	l.count.Originated++
	l.enqueue(l.now, int(port), d[:])
	return nil
}
