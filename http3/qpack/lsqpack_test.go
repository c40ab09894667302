package qpack

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// lsqpack is another implementation, ls-qpack by its Python binding.
type lsqpack struct {
	t  *testing.T
	in io.Writer
	r  *bufio.Reader
}

func startLsqpack(t *testing.T) *lsqpack {
	python := os.Getenv("MILLRACE_PYLSQPACK")
	if python == "" {
		t.Skip("MILLRACE_PYLSQPACK does not name a Python with the package pylsqpack")
	}
	cmd := exec.Command(python, "testdata/lsqpack.py")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return &lsqpack{t, in, bufio.NewReader(out)}
}

func (l *lsqpack) call(format string, args ...any) string {
	l.t.Helper()
	if _, err := fmt.Fprintf(l.in, format+"\n", args...); err != nil {
		l.t.Fatal(err)
	}
	line, err := l.r.ReadString('\n')
	if err != nil || strings.HasPrefix(line, "error") {
		l.t.Fatalf("%s: %s%v", format, line, err)
	}
	return strings.TrimSuffix(line, "\n")
}

func fieldsText(fields []Field) string {
	var list []string
	for _, f := range fields {
		list = append(list, hex.EncodeToString([]byte(f.Name))+"="+hex.EncodeToString([]byte(f.Value)))
	}
	return strings.Join(list, ",")
}

// What our encoder sends, ls-qpack decodes, and its acknowledgments keep the table moving.
func TestLsqpackDecodes(t *testing.T) {
	l := startLsqpack(t)
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		capacity, blocked := []int{0, 256, 1000, 4096}[rng.IntN(4)], rng.IntN(20)
		l.call("decoder %d %d", capacity, blocked)
		e := NewEncoder(EncoderOptions{})
		e.SetPeer(uint64(capacity), uint64(blocked))
		want := map[string]string{}
		var instructions []byte
		acks := ""
		flush := func() {
			for _, u := range strings.Fields(l.call("instr %x", instructions)) {
				part := strings.Split(u, ":")
				if part[2] != want[part[0]] {
					t.Fatalf("seed %d: stream %s differs", seed, part[0])
				}
				delete(want, part[0])
				acks += part[1]
			}
			instructions = nil
		}
		for stream := uint64(0); stream < 1200; stream += 4 {
			fields := randomFields(rng)
			section := e.Encode(nil, stream, fields)
			instructions = e.AppendStream(instructions)
			if rng.IntN(3) == 0 {
				flush()
			}
			id := fmt.Sprint(stream)
			want[id] = fieldsText(fields)
			if got := l.call("decode %d %x", stream, section); got != "blocked" {
				ack, text, _ := strings.Cut(got, " ")
				if text != want[id] {
					t.Fatalf("seed %d: stream %d differs", seed, stream)
				}
				delete(want, id)
				acks += ack
			}
			if p, err := hex.DecodeString(acks); err != nil || e.Acknowledgments(p) != nil {
				t.Fatal("acknowledgments", acks, err)
			}
			acks = ""
		}
		flush()
		if len(want) > 0 {
			t.Fatalf("seed %d: %d streams stay blocked", seed, len(want))
		}
	}
}

// What ls-qpack sends, our decoder decodes.
func TestLsqpackEncodes(t *testing.T) {
	for seed := range uint64(10) {
		l := startLsqpack(t)
		rng := rand.New(rand.NewPCG(seed, 4))
		capacity, blocked := []int{256, 1000, 4096}[rng.IntN(3)], rng.IntN(20)
		d := NewDecoder(DecoderOptions{MaxCapacity: uint64(capacity), MaxBlocked: blocked})
		instructions, _ := hex.DecodeString(l.call("settings %d %d", capacity, blocked))
		waiting := map[uint64]message{}
		decode := func(stream uint64, m message) {
			var s Section
			done, err := d.Decode(stream, m.section, &s)
			if err != nil {
				t.Fatal(err)
			}
			if !done {
				waiting[stream] = m
			} else if !slices.EqualFunc(s.Fields, m.want, func(a, b Field) bool { return a.Name == b.Name && a.Value == b.Value }) {
				t.Fatalf("seed %d: stream %d: %v, want %v", seed, stream, s.Fields, m.want)
			}
		}
		flush := func() {
			if err := d.Instructions(instructions); err != nil {
				t.Fatal(err)
			}
			instructions = nil
			for stream, found := d.Unblocked(); found; stream, found = d.Unblocked() {
				m := waiting[stream]
				delete(waiting, stream)
				decode(stream, m)
			}
		}
		for stream := uint64(0); stream < 1200; stream += 4 {
			fields := randomFields(rng)
			a, b, _ := strings.Cut(l.call("encode %d %s", stream, fieldsText(fields)), " ")
			more, _ := hex.DecodeString(a)
			section, _ := hex.DecodeString(b)
			instructions = append(instructions, more...)
			if rng.IntN(3) == 0 {
				flush()
			}
			decode(stream, message{section, fields})
			if out := d.AppendStream(nil); len(out) > 0 {
				l.call("acks %x", out)
			}
		}
		flush()
		if len(waiting) > 0 {
			t.Fatalf("seed %d: %d streams stay blocked", seed, len(waiting))
		}
		if d.table.next == 0 {
			t.Errorf("seed %d: ls-qpack inserted nothing", seed)
		}
	}
}
