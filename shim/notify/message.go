package notify

import (
	"encoding/binary"
	"syscall"

	"golang.org/x/sys/unix"
)

// Sizes and offsets of struct msghdr and struct mmsghdr of a 64-bit program, in bytes.
const (
	messageSize   = 56
	nameLengthAt  = 8
	partsAt       = 16
	partCountAt   = 24
	controlAt     = 32
	controlSizeAt = 40
	flagsAt       = 48
	batchSize     = 64
	batchLengthAt = 56
)

// maxParts is UIO_MAXIOV of the kernel: how many parts a message has, and how many messages a call.
const maxParts = 1024

// maxDatagram is how many bytes of a program a datagram has (RFC 768, over IPv4).
const maxDatagram = 65507

// maxControl bounds the control messages of a call, in bytes.
const maxControl = 4096

// message is the struct msghdr of a call, or what recvfrom(2) and sendto(2) have in its place.
type message struct {
	name       uint64 // address in the program; 0 is none
	nameSize   int
	parts      []unix.RemoteIovec
	control    uint64
	controlMax int

	// at is where the struct is, 0 without one. lengthAt is where recvfrom(2) wants the length of the name.
	at, lengthAt uint64
}

// single is the message of a call with one buffer.
func single(data, n, name uint64, nameSize int) message {
	return message{name: name, nameSize: nameSize, parts: []unix.RemoteIovec{{Base: uintptr(data), Len: int(min(n, 1<<30))}}}
}

// readMessage reads a struct msghdr.
func (c *call) readMessage(at uint64) (m message, err error) {
	var b [messageSize]byte
	if err := c.read(at, b[:]); err != nil {
		return m, err
	}
	word := func(i int) uint64 { return binary.NativeEndian.Uint64(b[i:]) }
	m = message{name: word(0), nameSize: int(int32(binary.NativeEndian.Uint32(b[nameLengthAt:]))), control: word(controlAt), at: at}
	count, control := word(partCountAt), word(controlSizeAt)
	switch {
	case m.name == 0:
		m.nameSize = 0
	case m.nameSize < 0:
		return m, syscall.EINVAL
	}
	if count > maxParts {
		return m, syscall.EMSGSIZE
	}
	if m.control != 0 {
		m.controlMax = int(min(control, maxControl))
	}
	list := make([]byte, 16*count)
	if err := c.read(word(partsAt), list); err != nil {
		return m, err
	}
	for i := range int(count) {
		base, n := binary.NativeEndian.Uint64(list[16*i:]), binary.NativeEndian.Uint64(list[16*i+8:])
		if n > 1<<31-1 {
			return m, syscall.EINVAL
		}
		m.parts = append(m.parts, unix.RemoteIovec{Base: uintptr(base), Len: int(n)})
	}
	return m, nil
}

// size returns how many bytes the parts have.
func (m *message) size() (n int) {
	for _, p := range m.parts {
		n += p.Len
	}
	return n
}

// gather copies the parts from the program into b, which has their size.
func (c *call) gather(m *message, b []byte) error {
	for _, p := range m.parts {
		if err := c.read(uint64(p.Base), b[:p.Len]); err != nil {
			return err
		}
		b = b[p.Len:]
	}
	return nil
}

// scatter copies b into the parts, as much as they take.
func (c *call) scatter(m *message, b []byte) error {
	for _, p := range m.parts {
		n := min(p.Len, len(b))
		if err := c.write(uint64(p.Base), b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// finish writes what a receiving call reports beside the bytes.
func (c *call) finish(m *message, name, control []byte, flags int) error {
	if m.name != 0 && len(name) > 0 {
		if err := c.write(m.name, name[:min(len(name), m.nameSize)]); err != nil {
			return err
		}
	}
	if m.at == 0 {
		if m.lengthAt == 0 {
			return nil
		}
		return c.writeLength(m.lengthAt, len(name))
	}
	if len(control) > 0 {
		if err := c.write(m.control, control); err != nil {
			return err
		}
	}
	if m.name == 0 {
		name = nil
	}
	err := c.writeLength(m.at+nameLengthAt, len(name))
	if err == nil {
		err = c.write(m.at+controlSizeAt, binary.NativeEndian.AppendUint64(nil, uint64(len(control))))
	}
	if err == nil {
		err = c.writeLength(m.at+flagsAt, flags)
	}
	return err
}
