package inspect

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/internal/testpcaps"
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
