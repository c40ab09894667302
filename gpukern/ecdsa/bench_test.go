package ecdsa

import (
	"crypto/ecdsa"
	"crypto/rand"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// cpuTime returns the CPU time of the process in ns: other processes may have the CPU meanwhile.
func cpuTime() int64 {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return t.Nano()
}

// BenchmarkPass makes eight signatures, without nonces and encodings, and one after the other by crypto/ecdsa.
func BenchmarkPass(b *testing.B) {
	for _, curve := range curves {
		c := curve()
		k := randomKey(b, c)
		digest, nonce := make([]byte, 32), make([]byte, 2*c.size)
		rand.Read(nonce)
		b.Run(fmt.Sprintf("P-%d/eight", c.params.BitSize), func(b *testing.B) {
			p := NewPass(c)
			start := cpuTime()
			for b.Loop() {
				for range Lanes {
					p.Set(k.key, digest, nonce)
				}
				if !p.Run() {
					b.Fatal("refused")
				}
				p.Clear()
			}
			b.ReportMetric(float64(cpuTime()-start)/float64(b.N*Lanes)/1000, "cpu-us/signature")
		})
		b.Run(fmt.Sprintf("P-%d/crypto", c.params.BitSize), func(b *testing.B) {
			start := cpuTime()
			for b.Loop() {
				if _, err := ecdsa.SignASN1(rand.Reader, k.std, digest); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpuTime()-start)/float64(b.N)/1000, "cpu-us/signature")
		})
	}
}
