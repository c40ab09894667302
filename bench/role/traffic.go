package role

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/gpukern/lpm"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/wire"
)

// IMIX is the usual mix of sizes: 7 small, 4 medium and 1 large packet. Sizes are without the FCS.
var IMIX = []int{60, 60, 60, 60, 60, 60, 60, 590, 590, 590, 590, 1514}

// WriteTraffic stores n synthesized IPv4 packets of the given sizes, in turn, in a capture: TCP and
// UDP by halves, random addresses and ports, right checksums. The same call writes the same bytes.
func WriteTraffic(path string, n int, sizes []int) error {
	w, err := capture.Create(path, capture.WriterConfig{
		Interfaces: []capture.Interface{{LinkType: capture.LinkTypeEthernet}},
	})
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range n {
		p := segment(rng, sizes[i%len(sizes)])
		if err := w.Write(&capture.Record{Data: p, Len: len(p), Time: int64(i) * 1000, LinkType: capture.LinkTypeEthernet}); err != nil {
			return errors.Join(err, w.Close())
		}
	}
	return w.Close()
}

// segment returns a TCP or UDP packet between random hosts.
func segment(rng *rand.Rand, size int) []byte {
	p := make([]byte, size)
	binary.BigEndian.PutUint16(p[12:], wire.EtherTypeIPv4)
	ip := p[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, wire.ProtoTCP
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	binary.BigEndian.PutUint32(ip[12:], rng.Uint32())
	binary.BigEndian.PutUint32(ip[16:], rng.Uint32())
	l4 := ip[20:]
	for i := range l4 {
		l4[i] = byte(rng.Uint32())
	}
	check := 16
	if rng.Uint32()&1 == 0 {
		ip[9], check = wire.ProtoUDP, 6
		binary.BigEndian.PutUint16(l4[4:], uint16(len(l4)))
	} else {
		l4[12], l4[13] = 5<<4, byte(wire.FlagACK)
	}
	binary.BigEndian.PutUint16(ip[10:], wire.Fold(wire.Sum(ip[:20], 0)))
	l4[check], l4[check+1] = 0, 0
	pseudo := wire.PseudoHeader4([4]byte(ip[12:]), [4]byte(ip[16:]), ip[9], uint32(len(l4)))
	binary.BigEndian.PutUint16(l4[check:], wire.Fold(wire.Sum(l4, pseudo)))
	return p
}

// CaptureDir returns the folder of captures: $MILLRACE_PCAPS, or those of the repository's tests.
func CaptureDir(root string) string {
	if dir := os.Getenv("MILLRACE_PCAPS"); dir != "" {
		return dir
	}
	return filepath.Join(root, "internal", "testkit", "testpcaps", "testdata")
}

// SampleCaptures returns the captures of captureDir that can be read to their end. reason says why
// there are none.
func SampleCaptures(root string) (files []string, reason string) {
	dir := CaptureDir(root)
	all, _ := filepath.Glob(filepath.Join(dir, "*.pcap*"))
	for _, f := range all {
		if readable(f) {
			files = append(files, f)
		}
	}
	if len(files) == 0 {
		return nil, "no captures: set MILLRACE_PCAPS to a folder of pcap files"
	}
	return files, ""
}

func readable(path string) bool {
	r, err := capture.Open(path)
	if err != nil {
		return false
	}
	defer r.Close()
	for {
		if _, err := r.Next(); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

// Sizes of the tables of the header pass.
const (
	TableRules  = 100
	TableRoutes = 1000
)

// headerLists are the rules and routes of the header pass, the same at every call.
func headerLists() kernref.Lists {
	rng := rand.New(rand.NewPCG(2, 3))
	var l kernref.Lists
	for range TableRules {
		r := acl.Rule{Src: prefix(rng, 8, 24), Dst: prefix(rng, 8, 32), Proto: wire.ProtoTCP}
		if lo := uint16(rng.Uint32()); rng.Uint32()&1 == 0 {
			r.DstPorts = acl.PortRange(lo, lo|0xff)
		}
		l.Rules = append(l.Rules, r)
	}
	seen := map[netip.Prefix]bool{}
	for len(l.Routes) < TableRoutes {
		p := prefix(rng, 8, 28)
		if !seen[p] {
			seen[p] = true
			l.Routes = append(l.Routes, lpm.Route{Prefix: p, NextHop: uint16(1 + len(l.Routes)%250)})
		}
	}
	return l
}

// prefix returns a random IPv4 prefix of lo to hi bits.
func prefix(rng *rand.Rand, lo, hi int) netip.Prefix {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], rng.Uint32())
	return netip.PrefixFrom(netip.AddrFrom4(a), lo+rng.IntN(hi-lo+1)).Masked()
}

func headerTables() (gpukern.Tables, error) {
	l := headerLists()
	acl, err := acl.Compile(l.Rules)
	if err != nil {
		return gpukern.Tables{}, fmt.Errorf("rules: %w", err)
	}
	routes, err := lpm.Compile(l.Routes)
	if err != nil {
		return gpukern.Tables{}, fmt.Errorf("routes: %w", err)
	}
	return gpukern.Tables{ACL: acl, Routes: routes}, nil
}
