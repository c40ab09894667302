// Package testdns is a name server of a test, on a loopback port over UDP and TCP. Its answers change when the test says so.
package testdns

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// Answer is what the server answers to questions for a name and a type.
type Answer struct {
	Code    dnsmessage.RCode
	TTL     uint32
	Records []dnsmessage.ResourceBody
	Aliases []string // CNAMEs between the name and the records
	Silent  bool     // no answer
	Forged  bool     // answers with another number, question and sender's port come first
	NoEDNS  bool     // a question with EDNS is answered FORMERR
	ByTCP   bool     // over UDP the answer is truncated
}

// A, AAAA and SRV return records.
func A(s string) dnsmessage.ResourceBody {
	return &dnsmessage.AResource{A: netip.MustParseAddr(s).As4()}
}

// AAAA returns a record.
func AAAA(s string) dnsmessage.ResourceBody {
	return &dnsmessage.AAAAResource{AAAA: netip.MustParseAddr(s).As16()}
}

// SRV returns a record.
func SRV(priority, weight, port uint16, target string) dnsmessage.ResourceBody {
	return &dnsmessage.SRVResource{Priority: priority, Weight: weight, Port: port, Target: dnsmessage.MustNewName(target)}
}

// Server is a name server. Names that Set has not named do not exist.
type Server struct {
	Addr netip.AddrPort

	udp *net.UDPConn
	tcp net.Listener

	mu      sync.Mutex
	answers map[question]Answer
	asked   map[string]int // by "udp name" and "tcp name"
}

type question struct {
	name string
	typ  dnsmessage.Type
}

// Start returns a server that ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{answers: map[question]Answer{}, asked: map[string]int{}}
	for range 100 { // a port that is free for both
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s.Addr = l.Addr().(*net.TCPAddr).AddrPort()
		if s.udp, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(s.Addr)); err == nil {
			s.tcp = l
			break
		}
		_ = l.Close()
	}
	if s.tcp == nil {
		t.Fatal("no port is free for TCP and UDP")
	}
	var all sync.WaitGroup
	all.Go(s.serveUDP)
	all.Go(s.serveTCP)
	t.Cleanup(func() {
		_, _ = s.udp.Close(), s.tcp.Close()
		all.Wait()
	})
	return s
}

// Set sets the answer for a name, which ends with a dot.
func (s *Server) Set(name string, typ dnsmessage.Type, a Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[question{strings.ToLower(name), typ}] = a
}

// SetA sets the IPv4 addresses of a name, whose time to live is 0, and that it has no others.
func (s *Server) SetA(name string, addrs ...string) {
	var list []dnsmessage.ResourceBody
	for _, a := range addrs {
		list = append(list, A(a))
	}
	s.Set(name, dnsmessage.TypeA, Answer{Records: list})
	s.Set(name, dnsmessage.TypeAAAA, Answer{})
}

// Asked returns how often a name was asked for over a network.
func (s *Server) Asked(network, name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[network+" "+strings.ToLower(name)]
}

func (s *Server) serveUDP() {
	b := make([]byte, 1<<16)
	for {
		n, from, err := s.udp.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		for _, m := range s.answer("udp", b[:n]) {
			_, _ = s.udp.WriteToUDPAddrPort(m, from)
		}
	}
}

func (s *Server) serveTCP() {
	for {
		c, err := s.tcp.Accept()
		if err != nil {
			return
		}
		var head [2]byte
		if _, err := io.ReadFull(c, head[:]); err == nil {
			b := make([]byte, binary.BigEndian.Uint16(head[:]))
			if _, err := io.ReadFull(c, b); err == nil {
				for _, m := range s.answer("tcp", b) {
					_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...))
				}
			}
		}
		_ = c.Close()
	}
}

// answer returns the messages that answer one.
func (s *Server) answer(network string, msg []byte) (list [][]byte) {
	var m dnsmessage.Message
	if m.Unpack(msg) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	name := strings.ToLower(q.Name.String())
	s.mu.Lock()
	s.asked[network+" "+name]++
	a, known := s.answers[question{name, q.Type}]
	s.mu.Unlock()
	if a.Silent {
		return nil
	}
	out := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RCode: a.Code}, Questions: m.Questions}
	switch edns := len(m.Additionals) > 0; {
	case !known:
		out.RCode = dnsmessage.RCodeNameError
	case a.NoEDNS && edns:
		out.RCode, out.Questions = dnsmessage.RCodeFormatError, nil
	case a.ByTCP && network == "udp":
		out.Truncated = true
	default:
		out.Answers = a.resources(q)
	}
	if a.Forged {
		forged := out
		forged.Answers = Answer{TTL: 9, Records: []dnsmessage.ResourceBody{A("192.0.2.66")}}.resources(q)
		forged.ID++
		list = append(list, pack(forged))
		forged.ID, forged.Questions = m.ID, []dnsmessage.Question{{Name: dnsmessage.MustNewName("other.example."), Type: q.Type, Class: q.Class}}
		list = append(list, pack(forged))
		forged.Questions, forged.Response = m.Questions, false
		list = append(list, pack(forged), []byte("?"))
	}
	return append(list, pack(out))
}

func pack(m dnsmessage.Message) []byte {
	b, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return b
}

// resources returns the records of an answer, behind its aliases.
func (a Answer) resources(q dnsmessage.Question) (list []dnsmessage.Resource) {
	owner := q.Name
	for _, alias := range a.Aliases {
		to := dnsmessage.MustNewName(alias)
		list = append(list, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: owner, Class: q.Class, TTL: a.TTL}, Body: &dnsmessage.CNAMEResource{CNAME: to},
		})
		owner = to
	}
	for _, body := range a.Records {
		list = append(list, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: owner, Class: q.Class, TTL: a.TTL}, Body: body})
	}
	return list
}
