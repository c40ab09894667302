package x25519

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"fmt"
	"testing"
)

// newExchange returns an exchange with a peer, and the peer's key.
func newExchange(t testing.TB) (*Exchange, *ecdh.PrivateKey) {
	t.Helper()
	peer, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	x := new(Exchange)
	rand.Read(x.Private[:])
	copy(x.Peer[:], peer.PublicKey().Bytes())
	return x, peer
}

// agrees reports whether the peer gets the same secret by crypto/ecdh.
func agrees(t testing.TB, x *Exchange, peer *ecdh.PrivateKey) bool {
	t.Helper()
	public, err := ecdh.X25519().NewPublicKey(x.Public[:])
	if err != nil {
		t.Fatal(err)
	}
	secret, err := peer.ECDH(public)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(secret, x.Shared[:])
}

// TestExchangesAgreeWithECDH has any number of exchanges in a batch, and one without.
func TestExchangesAgreeWithECDH(t *testing.T) {
	forms(t, func(t *testing.T) {
		var b Batch
		var total uint64
		for n := range 10 {
			var exchanges []*Exchange
			var peers []*ecdh.PrivateKey
			done := 0
			for range n {
				x, peer := newExchange(t)
				x.Done = func() { done++ }
				b.Add(x)
				exchanges, peers = append(exchanges, x), append(peers, peer)
			}
			if b.Waiting() != n {
				t.Fatalf("%d wait, %d were added", b.Waiting(), n)
			}
			b.Run()
			if total += uint64(n); b.Computed() != total {
				t.Fatalf("%d are counted, not %d", b.Computed(), total)
			}
			if done != n || b.Waiting() != 0 {
				t.Fatalf("%d of %d are done, %d wait", done, n, b.Waiting())
			}
			for i, x := range exchanges {
				if !x.Ended() || !x.Secure() || !agrees(t, x, peers[i]) {
					t.Errorf("exchange %d of %d: ended %v, secure %v", i, n, x.Ended(), x.Secure())
				}
			}
		}
		x, peer := newExchange(t)
		if x.Compute(); !x.Ended() || !agrees(t, x, peer) {
			t.Error("Compute differs from crypto/ecdh")
		}
	})
}

// TestExchangesWithPointsOfLowOrder have no secret, whichever way they are computed.
func TestExchangesWithPointsOfLowOrder(t *testing.T) {
	forms(t, func(t *testing.T) {
		var b Batch
		low, _ := newExchange(t)
		low.Peer = [Size]byte{1}
		good, peer := newExchange(t)
		b.Add(low)
		b.Add(good)
		b.Run()
		if low.Secure() || !good.Secure() || !agrees(t, good, peer) {
			t.Errorf("secure: %v with a point of low order, %v with another", low.Secure(), good.Secure())
		}
		if low.Compute(); low.Secure() {
			t.Error("Compute has a secret for a point of low order")
		}
	})
}

// TestCancelledExchangesAreNotComputed: also those that another one's Done cancels.
func TestCancelledExchangesAreNotComputed(t *testing.T) {
	var b Batch
	var x [3]*Exchange
	for i := range x {
		x[i], _ = newExchange(t)
		x[i].Done = func() { t.Errorf("Done of exchange %d", i) }
		b.Add(x[i])
	}
	added, _ := newExchange(t)
	x[1].Done = func() {
		x[2].Cancel()
		b.Add(added)
	}
	x[0].Cancel()
	b.Run()
	if x[0].Ended() || !x[1].Ended() || x[2].Ended() || added.Ended() || b.Waiting() != 1 {
		t.Errorf("ended: %v, %v, %v; %d wait", x[0].Ended(), x[1].Ended(), x[2].Ended(), b.Waiting())
	}
	b.Run()
	if !added.Ended() {
		t.Error("an exchange that Done added is not computed by the next Run")
	}
	if x[1].Clear(); *x[1].zeroable() != (zeroable{}) {
		t.Error("Clear leaves keys")
	}
}

// zeroable is what Clear must overwrite.
type zeroable struct{ private, public, shared [Size]byte }

func (x *Exchange) zeroable() *zeroable { return &zeroable{x.Private, x.Public, x.Shared} }

// BenchmarkBatch reports the CPU time of an exchange, by how many are in a batch.
func BenchmarkBatch(b *testing.B) {
	for _, n := range []int{1, 2, 3, 4, 8} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var batch Batch
			var x [8]*Exchange
			for i := range x {
				x[i], _ = newExchange(b)
			}
			start := cpuTime()
			for b.Loop() {
				for _, one := range x[:n] {
					batch.Add(one)
				}
				batch.Run()
			}
			b.ReportMetric(float64(cpuTime()-start)/1000/float64(n*b.N), "cpu-us/exchange")
		})
	}
}
