package quicconn

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"

	"github.com/millrace/millrace/quic"
)

// Sockets opens UDP sockets of the kernel for listeners, which processes that replace each other share. See quic.SharedConn.
type Sockets struct {
	generation *quic.Generation
	secret     []byte

	mu        sync.Mutex
	inherited map[netip.AddrPort]*quic.Passed
	waiting   bool // another process still reads the inherited ones
	open      map[netip.AddrPort]*quic.SharedConn
}

// NewSockets returns the sockets of a process of a generation. The inherited ones are of the process that it replaces; those that
// are not opened by Prepared are closed there.
func NewSockets(number uint8, secret []byte, inherited map[netip.AddrPort]*quic.Passed) (*Sockets, error) {
	g, err := quic.NewGeneration(number, secret)
	if err != nil {
		return nil, err
	}
	return &Sockets{generation: g, secret: secret, inherited: inherited, waiting: inherited != nil, open: map[netip.AddrPort]*quic.SharedConn{}}, nil
}

// Config returns the configuration of transports: IDs of the generation, and keys that all processes have.
func (s *Sockets) Config() quic.TransportConfig {
	return quic.TransportConfig{IDs: s.generation.IDs(), Secret: s.secret}
}

// Open is the Opener of these sockets.
func (s *Sockets) Open(at netip.AddrPort, c quic.TransportConfig) (*quic.Transport, error) {
	if !at.IsValid() { // of connections to backends, which end with the process
		return OverKernel(at, c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	conn, err := s.conn(at)
	if errors.Is(err, errors.ErrUnsupported) {
		return OverKernel(at, c)
	}
	if err != nil {
		return nil, err
	}
	c.Messages = nil
	t, err := transportOn(conn, c)
	if err == nil {
		s.open[at] = conn
	}
	return t, err
}

// conn returns the inherited socket of an address, or a new one. The caller holds s.mu.
func (s *Sockets) conn(at netip.AddrPort) (*quic.SharedConn, error) {
	p := s.inherited[at]
	if p == nil {
		udp, err := net.ListenUDP(network(at), net.UDPAddrFromAddrPort(at))
		if err != nil {
			return nil, err
		}
		return shared(udp, s.generation, true)
	}
	delete(s.inherited, at)
	pc, err := net.FilePacketConn(p.Socket)
	if err != nil {
		p.Close()
		return nil, err
	}
	p.Socket.Close()
	udp, ok := pc.(*net.UDPConn)
	if !ok {
		pc.Close()
		return nil, fmt.Errorf("the socket of %s is no UDP socket", at)
	}
	c, err := shared(udp, s.generation, !s.waiting)
	if err != nil {
		return nil, err
	}
	return c, c.Inherit(p.Relays)
}

func shared(udp *net.UDPConn, g *quic.Generation, reads bool) (*quic.SharedConn, error) {
	c, err := quic.NewSharedConn(udp, g, reads)
	if err != nil {
		udp.Close()
	}
	return c, err
}

// Prepared closes the inherited sockets that were not opened, and returns their addresses: the other process goes on with them.
func (s *Sockets) Prepared() (left []netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, p := range s.inherited {
		left = append(left, at)
		p.Close()
	}
	s.inherited = nil
	return left
}

// Take reads the inherited sockets from now on.
func (s *Sockets) Take() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = false
	for _, c := range s.open {
		c.Take()
	}
}

// Pass returns the sockets for another process, and its number: one that no process has which still has connections.
func (s *Sockets) Pass() (all map[netip.AddrPort]*quic.Passed, number uint8, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, number = map[netip.AddrPort]*quic.Passed{}, s.generation.Number()
	taken := map[uint8]bool{number: true}
	for at, c := range s.open {
		p, e := c.Pass()
		if errors.Is(e, net.ErrClosed) { // its listener is gone, and so are its connections
			delete(s.open, at)
			continue
		}
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		all[at] = p
		for of := range p.Relays {
			taken[of] = true
		}
	}
	for range taken {
		if number++; !taken[number] {
			return all, number, err
		}
	}
	return all, number, errors.Join(err, errTooMany)
}

// errTooMany is the error of an upgrade while 256 processes have connections.
var errTooMany = errors.New("256 processes of earlier upgrades still have connections: wait for their end")

// Hold leaves the sockets to another process, but for those at some addresses, or takes them back.
func (s *Sockets) Hold(hold bool, except []netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := map[netip.AddrPort]bool{}
	for _, at := range except {
		kept[at] = true
	}
	for at, c := range s.open {
		switch {
		case !hold:
			c.Take()
		case !kept[at]:
			c.Leave()
		}
	}
}

// Give leaves the sockets to the other process for good.
func (s *Sockets) Give() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.open {
		c.Give()
	}
}

// File is a descriptor of a socket or a relay, with what it is of.
type File struct {
	At    netip.AddrPort
	Relay int // generation, or -1 for the socket
	File  *os.File
}

// Files returns the descriptors of passed sockets, and FromFiles is the inverse.
func Files(all map[netip.AddrPort]*quic.Passed) (list []File) {
	for at, p := range all {
		list = append(list, File{at, -1, p.Socket})
		for number, f := range p.Relays {
			list = append(list, File{at, int(number), f})
		}
	}
	return list
}

// FromFiles returns the sockets whose descriptors are in a list. It takes the files.
func FromFiles(list []File) (map[netip.AddrPort]*quic.Passed, error) {
	all := map[netip.AddrPort]*quic.Passed{}
	for _, f := range list {
		p := all[f.At]
		if p == nil {
			p = &quic.Passed{Relays: map[uint8]*os.File{}}
			all[f.At] = p
		}
		if f.Relay < 0 {
			p.Socket = f.File
		} else {
			p.Relays[uint8(f.Relay)] = f.File
		}
	}
	for at, p := range all {
		if p.Socket == nil {
			return all, fmt.Errorf("relays of %s without its socket", at)
		}
	}
	return all, nil
}
