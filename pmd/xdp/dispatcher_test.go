package xdp

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// What a configuration says is read again, and one of another version or size is refused.
func TestConfigOfDispatchers(t *testing.T) {
	c := config{count: 2, frags: true}
	c.actions[1], c.prios[0], c.flags[9] = Drop|Continue, 7, hasFrags
	if got, err := parseConfig(c.bytes()); err != nil || got != c {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []struct {
		what string
		want error
		of   func(b []byte) []byte
	}{
		{"version 3", ErrVersion, func(b []byte) []byte { b[1] = 3; return b }},
		{"version 3 and its size", ErrVersion, func(b []byte) []byte { b[1] = 3; return append(b, make([]byte, 40)...) }},
		{"eleven components", nil, func(b []byte) []byte { b[2] = MaxComponents + 1; return b }},
		{"a byte too few", nil, func(b []byte) []byte { return b[:len(b)-1] }},
		{"no magic byte", nil, func(b []byte) []byte { b[0]++; return b }},
		{"nothing", nil, func([]byte) []byte { return nil }},
	} {
		if _, err := parseConfig(bad.of(c.bytes())); err == nil || bad.want != nil && !errors.Is(err, bad.want) {
			t.Errorf("%s: %v", bad.what, err)
		}
	}
}

// chainOf loads a dispatcher whose functions are what components would be, the last of which drops and the others pass: all
// that is left out is the jump that the kernel writes to the begin of a function when an extension replaces it. 0 is the
// program that drops, without a dispatcher.
func chainOf(n int) (*ebpf.Program, error) {
	drop := asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}
	if n == 0 {
		return ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "Dual BSD/GPL", Instructions: drop})
	}
	spec, err := loadDispatcher()
	if err != nil {
		return nil, err
	}
	conf := config{count: n}
	for i := range n {
		conf.actions[i] = DefaultActions | Continue
	}
	if err := spec.Variables[dispatcherVarConf].Set(conf.bytes()); err != nil {
		return nil, err
	}
	p := spec.Programs[dispatcherProgXdpDispatcher]
	p.Instructions = replaceBodies(p.Instructions, n)
	var objs dispatcherPrograms
	err = spec.LoadAndAssign(&objs, nil)
	return objs.XdpDispatcher, err
}

// replaceBodies gives the functions of components bodies of two instructions.
func replaceBodies(all asm.Instructions, n int) (out asm.Instructions) {
	component := -1
	for _, in := range all {
		if name := in.Symbol(); name != "" {
			component = -1
			if _, err := fmt.Sscanf(name, "prog%d", &component); err == nil {
				result := int32(2) // XDP_PASS
				if component == n-1 {
					result = 1
				}
				out = append(out, asm.Mov.Imm(asm.R0, result).WithMetadata(in.Metadata), asm.Return())
			}
		}
		if component < 0 {
			out = append(out, in)
		}
	}
	return out
}

// BenchmarkDispatcher is the time of a chain of programs, of which the last drops, to that of the last alone.
func BenchmarkDispatcher(b *testing.B) {
	for _, n := range []int{0, 1, 2, 10} {
		b.Run(fmt.Sprintf("%d components", n), func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			p, err := chainOf(n)
			if err != nil {
				b.Fatalf("%+v", err)
			}
			defer p.Close()
			info, err := p.Info()
			if err != nil {
				b.Fatal(err)
			}
			insns, _ := info.Instructions()
			const repeat = 100_000
			best := time.Duration(1 << 62)
			for b.Loop() {
				before := threadTime()
				result, _, err := p.Benchmark(make([]byte, 64), repeat, nil)
				best = min(best, threadTime()-before)
				if err != nil || result != 1 {
					b.Fatal(result, err)
				}
			}
			b.ReportMetric(float64(best)/repeat, "ns/packet")
			b.ReportMetric(float64(len(insns)), "instructions")
		})
	}
}

// threadTime is the CPU time of the calling thread.
func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}
