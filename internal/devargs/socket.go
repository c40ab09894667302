package devargs

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Prefixes of names of vhost-user sockets: the end that a virtual machine connects to, and the driver's end.
const (
	VhostPrefix  = "vhost:"
	VirtioPrefix = "virtio:"
)

// Socket is a parsed name of a vhost-user socket: "vhost:/run/vm1.sock,mode=client,mtu=9000".
type Socket struct {
	Frontend bool // the driver's end
	Path     string
	Server   bool    // mode=server: listen. The default is that of DPDK: a back end listens, a front end connects
	MTU      int     // mtu=9000; 0 is 1500
	MAC      [6]byte // mac=02:00:00:00:00:01; zero is one that follows from the path
	Packed   bool    // ring=packed, of a front end: where the back end has them
}

// mostPath is the longest path of a socket, bytes (unix(7)).
const mostPath = 107

// IsSocket reports whether name is that of a vhost-user socket.
func IsSocket(name string) bool { return IsVirtio(name) || strings.HasPrefix(name, VhostPrefix) }

// IsVirtio reports whether name is that of a driver's end, which needs a shared arena.
func IsVirtio(name string) bool { return strings.HasPrefix(name, VirtioPrefix) }

// ParseSocket parses a name of a vhost-user socket.
func ParseSocket(name string) (s Socket, err error) {
	scheme, rest, _ := strings.Cut(name, ":")
	s = Socket{Frontend: scheme+":" == VirtioPrefix, Server: scheme+":" == VhostPrefix}
	args := strings.Split(rest, ",")
	s.Path = args[0]
	switch {
	case s.Frontend == s.Server:
		return s, fmt.Errorf("%q begins with neither %s nor %s", name, VhostPrefix, VirtioPrefix)
	case !strings.HasPrefix(s.Path, "/") || strings.ContainsAny(s.Path, " \t\n\x00"):
		return s, fmt.Errorf("%q is no absolute path of a socket without white space", s.Path)
	case len(s.Path) > mostPath:
		return s, fmt.Errorf("the path %q has more than %d bytes", s.Path, mostPath)
	}
	for _, arg := range args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		if err := s.set(key, value); err != nil {
			return s, err
		}
	}
	return s, nil
}

// set sets one argument.
func (s *Socket) set(key, value string) error {
	switch {
	case key == "mode" && (value == "server" || value == "client"):
		s.Server = value == "server"
	case key == "mode":
		return fmt.Errorf("mode=%s: want server or client", value)
	case key == "mtu":
		n, err := strconv.Atoi(value)
		if err != nil || n < 68 || n > 65495 {
			return fmt.Errorf("mtu=%s: want 68 to 65495", value)
		}
		s.MTU = n
	case key == "mac":
		mac, err := net.ParseMAC(value)
		if err != nil || len(mac) != 6 || mac[0]&1 != 0 || [6]byte(mac) == [6]byte{} {
			return fmt.Errorf("mac=%s: want a unicast address as 02:00:00:00:00:01", value)
		}
		s.MAC = [6]byte(mac)
	case key == "ring" && s.Frontend && (value == "packed" || value == "split"):
		s.Packed = value == "packed"
	case key == "ring" && s.Frontend:
		return fmt.Errorf("ring=%s: want packed or split", value)
	case key == "ring":
		return fmt.Errorf("ring=%s: the front end selects the form of the rings", value)
	default:
		return fmt.Errorf("no argument is called %q: want mode, mtu, mac or ring", key)
	}
	return nil
}
