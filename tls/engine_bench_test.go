package tls

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// cpuTime returns the CPU time of the process in ns: other processes may have the CPU meanwhile.
func cpuTime() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return t.Nano()
}

// BenchmarkServerFlight answers ClientHellos of TLS 1.3 with the whole flight of a server, in a loop that collects one or eight of
// them before it computes and signs. What is left of a handshake is the comparison of the client's Finished.
func BenchmarkServerFlight(b *testing.B) {
	keys := map[string]func() (tls.Certificate, *x509.CertPool){"RSA-2048": batchCertificate, "P-256": batchCertificateECDSA}
	for _, key := range []string{"P-256", "RSA-2048"} {
		for _, group := range []tls.CurveID{tls.X25519, tls.X25519MLKEM768} {
			for _, atOnce := range []int{1, 2, 4, 8} {
				for _, who := range []string{"own", "crypto-tls"} {
					b.Run(fmt.Sprintf("%s/%v/%d/%s", key, group, atOnce, who), func(b *testing.B) {
						cert, roots := keys[key]()
						server := &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &cert, nil }}
						client := &tls.Config{
							RootCAs: roots, ServerName: "example.com", CurvePreferences: []tls.CurveID{group},
							ClientSessionCache: tls.NewLRUClientSessionCache(1), // else a server makes no ticket
						}
						benchmarkFlight(b, server, client, atOnce, EngineOptions{StandardHandshake: who != "own"})
					})
				}
			}
		}
	}
}

func benchmarkFlight(b *testing.B, server, client *tls.Config, atOnce int, o EngineOptions) {
	var q Signatures
	coroutines := new(Coroutines)
	defer coroutines.Close()
	o.Coroutines, o.Signatures = coroutines, &q
	c := NewClientEngine(client, EngineOptions{})
	hello := bytes.Clone(c.Pending())
	c.Close()
	in := make([]byte, len(hello))
	engines := make([]*Engine, atOnce)
	b.ReportAllocs()
	start := cpuTime()
	for b.Loop() {
		for i := range engines {
			copy(in, hello)
			engines[i] = NewServerEngine(server, o)
			if _, _, err := engines[i].Next(in); err != nil {
				b.Fatal(err)
			}
		}
		q.Run()
		for i, e := range engines {
			if _, _, err := e.Next(nil); err != nil || len(e.Pending()) < 500 {
				b.Fatalf("engine %d: %v, %d bytes", i, err, len(e.Pending()))
			}
			e.Close()
		}
	}
	b.ReportMetric(float64(cpuTime()-start)/1000/float64(atOnce*b.N), "cpu-us/handshake")
}
