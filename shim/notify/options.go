package notify

import (
	"encoding/binary"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/shim"
)

// maxOption is the longest value of an option that the node takes, in bytes.
const maxOption = 256

func (c *call) setsockopt() outcome {
	fd, of, o := c.served()
	if o != nil {
		return *o
	}
	defer unix.Close(fd)
	n := int32(uint32(c.args[4]))
	if n < 0 || n > maxOption {
		return failed(syscall.EINVAL)
	}
	value := make([]byte, n)
	if err := c.read(c.args[3], value); err != nil {
		return failed(err)
	}
	level, name := int(int32(c.args[1])), int(int32(c.args[2]))
	err := c.s.client.SetOption(int(c.tid), fd, level, name, value)
	if err == nil && !of.Connected {
		c.change(fd, func(m *made) { m.setOption(level, name, value) })
	}
	return c.refused(err)
}

func (c *call) getsockopt() outcome {
	fd, m, o := c.served()
	if o != nil {
		return *o
	}
	defer unix.Close(fd)
	level, name := int(int32(c.args[1])), int(int32(c.args[2]))
	space, err := c.readLength(c.args[4])
	if err != nil {
		return failed(err)
	}
	value, ok := known(m, level, name)
	if !ok {
		if value, err = c.s.client.Option(int(c.tid), fd, level, name, min(space, maxOption)); err != nil {
			return c.refused(err)
		}
	}
	value = value[:min(len(value), space)]
	if err = c.write(c.args[3], value); err == nil {
		err = c.writeLength(c.args[4], len(value))
	}
	if err != nil {
		return failed(err)
	}
	return outcome{}
}

// known answers what the mark says.
func known(m shim.Mark, level, name int) ([]byte, bool) {
	if level != unix.SOL_SOCKET {
		return nil, false
	}
	domain, kind, proto := unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP
	if m.V6 {
		domain = unix.AF_INET6
	}
	if m.Kind != shim.Stream {
		kind, proto = unix.SOCK_DGRAM, unix.IPPROTO_UDP
	}
	switch name {
	case unix.SO_DOMAIN:
		return binary.NativeEndian.AppendUint32(nil, uint32(domain)), true
	case unix.SO_TYPE:
		return binary.NativeEndian.AppendUint32(nil, uint32(kind)), true
	case unix.SO_PROTOCOL:
		return binary.NativeEndian.AppendUint32(nil, uint32(proto)), true
	}
	return nil, false
}

// intOf reads the int of an option; 0 if it is none.
func intOf(b []byte) int {
	if len(b) < 4 {
		return 0
	}
	return int(int32(binary.NativeEndian.Uint32(b)))
}
