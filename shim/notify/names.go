package notify

import (
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/shim"
)

func (c *call) getsockname() outcome { return c.name(c.localName) }
func (c *call) getpeername() outcome { return c.name(c.remoteName) }

// name answers with an address of the socket.
func (c *call) name(which func(fd int, m shim.Mark) (netip.AddrPort, error)) outcome {
	fd, m, o := c.served()
	if o != nil {
		return *o
	}
	a, err := which(fd, m)
	unix.Close(fd)
	if err != nil {
		return c.refused(err)
	}
	space, err := c.readLength(c.args[2])
	if err == nil {
		err = c.writeAddress(1, space, encodeAddress(a, m.V6))
	}
	if err != nil {
		return failed(err)
	}
	return outcome{}
}

// localName reads the name of a stream, and asks the node for that of others.
func (c *call) localName(fd int, m shim.Mark) (netip.AddrPort, error) {
	if m.Kind == shim.Stream {
		if local, _, ok := shim.OwnName(fd); ok {
			return local, nil
		}
		if _, remote, ok := shim.PeerName(fd); ok {
			return remote, nil
		}
	}
	local, _, err := c.namesOf(fd)
	return local, err
}

func (c *call) remoteName(fd int, m shim.Mark) (netip.AddrPort, error) {
	if m.Kind == shim.Stream {
		if local, _, ok := shim.PeerName(fd); ok {
			return local, nil
		}
		if _, remote, ok := shim.OwnName(fd); ok && remote.IsValid() && writable(fd) {
			return remote, nil
		}
	}
	_, remote, err := c.namesOf(fd)
	if err == nil && !remote.IsValid() {
		err = syscall.ENOTCONN
	}
	return remote, err
}

// namesOf asks the node. A socket that it does not know has no address, and stays unknown: a stream that is registered
// waits for bytes, where recv(2) of an unconnected one is an error.
func (c *call) namesOf(fd int) (local, remote netip.AddrPort, err error) {
	if _, err := unix.Getpeername(fd); err != nil {
		return local, remote, nil
	}
	return c.s.client.Names(int(c.tid), fd)
}

// writable reports whether the kernel would take bytes: what connects is not, nor is what failed to.
func writable(fd int) bool {
	ev := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	n, err := unix.Poll(ev, 0)
	return err == nil && n == 1 && ev[0].Revents&(unix.POLLOUT|unix.POLLERR) == unix.POLLOUT
}
