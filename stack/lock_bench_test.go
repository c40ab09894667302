package stack

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

// BenchmarkReach is what it costs another goroutine to do something in a loop that sleeps, or is awake:
// by a command and a wait for its end, or by the lock.
func BenchmarkReach(b *testing.B) {
	for _, awake := range []bool{false, true} {
		name, spin := "asleep", time.Nanosecond
		if awake {
			name, spin = "awake", time.Hour
		}
		a, _ := ring.NewArena(ring.ArenaConfig{Frames: 64, Huge: ring.HugeOff})
		pool, _ := a.Cut(0)
		dry := &sink{source{pool}}
		l, err := NewLoop(Config{Devices: []pmd.Driver{dry}, Pool: pool, Engine: gpukern.NewCPU(gpukern.Config{}), Handler: Bridge{}, Spin: spin})
		if err != nil {
			b.Fatal(err)
		}
		l.devices[0].info.Notifier = new(pmd.Notifier)
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan error, 1)
		go func() { done <- l.Serve(ctx) }()
		n := 0
		b.Run(name+"/command", func(b *testing.B) {
			answer := make(chan struct{}, 1)
			f := func() { n++; answer <- struct{}{} }
			for b.Loop() {
				l.Do(f)
				<-answer
			}
		})
		b.Run(name+"/lock", func(b *testing.B) {
			for b.Loop() {
				l.lock.Enter()
				n++
				l.lock.Exit()
			}
		})
		cancel()
		<-done
		l.Close()
		a.Close()
	}
}
