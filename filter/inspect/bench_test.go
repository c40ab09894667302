package inspect

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/internal/testkit/testpcaps"
	"github.com/millrace/millrace/wire"
)

// benchRules returns the rules of the folder MILLRACE_RULES, with any address at home.
func benchRules(b *testing.B) []*signature.Rule {
	b.Helper()
	dir := os.Getenv("MILLRACE_RULES")
	if dir == "" {
		b.Skip("MILLRACE_RULES names no folder of rules")
	}
	cfg := signature.Default()
	for name := range cfg.Addresses {
		cfg.Addresses[name] = "any"
	}
	var rules []*signature.Rule
	paths, _ := filepath.Glob(filepath.Join(dir, "*.rules"))
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			b.Fatal(err)
		}
		rules = append(rules, signature.Parse(path, string(text), cfg).Rules...)
	}
	return rules
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		if _, err := Compile(benchRules(b)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCaptures inspects all captures from memory.
func BenchmarkCaptures(b *testing.B) {
	rules, err := Compile(benchRules(b))
	if err != nil {
		b.Fatal(err)
	}
	type packet struct {
		at    int64
		frame []byte
	}
	var packets []packet
	size := 0
	for _, path := range testpcaps.Files(b) {
		in, err := capture.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		for {
			rec, err := in.Next()
			if err != nil {
				break
			}
			if frame, err := capture.ToEthernet(rec.LinkType, rec.Data, nil); err == nil {
				packets = append(packets, packet{rec.Time, append([]byte(nil), frame...)})
				size += len(frame)
			}
		}
		in.Close()
	}
	b.SetBytes(int64(size))
	for b.Loop() {
		e := New(rules, Config{}, func(*Alert) {})
		for _, p := range packets {
			e.Packet(p.at, p.frame)
		}
		e.Flush()
	}
}

// BenchmarkManyFlows inspects datagrams of 22 bytes of 16 384 flows by rules with one content each.
func BenchmarkManyFlows(b *testing.B) {
	var text strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&text, "alert ip any any -> any any (content:\"literal %x of a rule\"; sid:%d;)\n", i*2654435761, i+1)
	}
	rules, err := Compile(signature.Parse("bench", text.String(), nil).Rules)
	if err != nil {
		b.Fatal(err)
	}
	var frames [1 << 14][]byte
	for i := range frames {
		frames[i] = ether(wire.EtherTypeIPv4, ipPacket([4]byte{198, 18, byte(i >> 8), byte(i)}, server, wire.ProtoUDP,
			append(wire.AppendUDP(nil, uint16(1024+i), 53, 22), "0123456789 and no more"...)))
	}
	e := New(rules, Config{}, func(*Alert) {})
	b.ResetTimer()
	for i := range b.N {
		e.Packet(int64(i), frames[i%len(frames)])
	}
}
