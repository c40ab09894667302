package pubkey

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/gpukern/cuda"
)

// losing is randomness that loses the device at its n-th read.
type losing struct {
	left atomic.Int64
	lose func()
}

func (l *losing) Read(p []byte) (int, error) {
	if l.left.Add(-1) == 0 {
		l.lose()
	}
	return rand.Read(p)
}

// lossy runs a test with a device that is lost at the n-th read of its randomness.
func lossy(t *testing.T, batch, at int, f func(t *testing.T, b *bed, random *losing)) {
	t.Run("fake", func(t *testing.T) {
		b := openFake(t, Config{Batch: batch})
		l := &losing{lose: func() { b.drv.Lose(719) }}
		l.left.Store(int64(at))
		f(t, b, l)
	})
	t.Run("gpu", func(t *testing.T) {
		fault := make(chan struct{})
		b := newBed(t, cuda.Options{Fault: fault}, Config{Batch: batch})
		l := &losing{lose: func() {
			close(fault)
			for b.dev.Lost() == nil { // a goroutine of the device reads the channel
			}
		}}
		l.left.Store(int64(at))
		f(t, b, l)
	})
}

// ended checks that n operations have been done, some of them after the device was lost.
func (b *bed) ended(t *testing.T, n int) {
	t.Helper()
	s := b.Stats()
	begun := s.Lost > 0 || b.drv == nil // a GPU may have done what it had begun
	if s.Device+s.CPU != uint64(n) || !begun || s.Lost > s.CPU || s.Faults != 0 || b.Lost() == nil {
		t.Errorf("%+v of %d operations; %v", s, n, b.Lost())
	}
}

// TestADeviceThatIsLost: no operation is lost with it, whichever it has begun, and later calls do without it.
func TestADeviceThatIsLost(t *testing.T) {
	t.Run("P-256", func(t *testing.T) {
		lossy(t, 4, 14, func(t *testing.T, b *bed, random *losing) {
			requests := ecdsaRequests(ecdsaKeys(t, b.Engine, elliptic.P256(), 2), 30)
			b.SignECDSA(requests, random)
			verifyECDSA(t, requests)
			b.ended(t, 30)
			late, err := b.NewECDSAKey(requests[0].Key.key)
			if err != nil {
				t.Fatal(err)
			}
			requests[3].Key = late
			b.SignECDSA(requests, random)
			verifyECDSA(t, requests)
			b.ended(t, 60)
		})
	})
	t.Run("RSA", func(t *testing.T) {
		lossy(t, 1, 3, func(t *testing.T, b *bed, random *losing) {
			requests := rsaRequests(rsaKey(t, b.Engine, standardRSA(t, 2048)), 8)
			b.SignRSA(requests, random)
			verifyRSA(t, requests)
			b.ended(t, 8)
		})
	})
	t.Run("ML-KEM", func(t *testing.T) {
		lossy(t, 4, 14, func(t *testing.T, b *bed, random *losing) {
			key := kemKeys(t, 1)[0]
			all := make([]Encapsulation, 30)
			for i := range all {
				all[i].Key = key.EncapsulationKey().Bytes()
			}
			b.EncapsulateMLKEM768(all, random)
			for i, c := range all {
				if shared, err := key.Decapsulate(c.Ciphertext[:]); err != nil || c.Err != nil || [32]byte(shared) != c.Shared {
					t.Errorf("%d: %v, %v", i, err, c.Err)
				}
			}
			b.ended(t, 30)
		})
	})
}

// refusal is the result of a call that fails, and does not end the context.
const refusal = 802

// TestEveryCallMayFail has one call of the driver after the other fail: the operations are done, and nothing is left over.
func TestEveryCallMayFail(t *testing.T) {
	scalars, points := random32(1, 5), random32(2, 5)
	want := make([][32]byte, 5)
	x25519Standard(t, want, scalars, points)
	for n := 1; ; n++ {
		b := openFake(t, Config{Batch: 2})
		b.drv.Fail("", n, refusal)
		products := make([][32]byte, 5)
		b.X25519(products, scalars, points)
		for i := range want {
			if products[i] != want[i] {
				t.Fatalf("call %d fails: product %d is %x, want %x", n, i, products[i], want[i])
			}
		}
		s := b.Stats()
		if s.Device+s.CPU != 5 || s.Lost > s.CPU || (s.CPU > 0) != (b.Lost() != nil) {
			t.Fatalf("call %d fails: %+v, %v", n, s, b.Lost())
		}
		if b.drv.Fail("", 0, 0); b.Lost() == nil { // the call had no such number
			if n < 20 {
				t.Fatalf("%d calls", n)
			}
			return
		}
	}
}

// TestWithoutADevice does everything on the CPU.
func TestWithoutADevice(t *testing.T) {
	e, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	const n = 20
	scalars, points, products, want := random32(1, n), random32(2, n), random32(3, n), make([][32]byte, n)
	copy(points, hostilePoints(t))
	x25519Standard(t, want, scalars, points)
	e.X25519(products, scalars, points)
	for i := range want {
		if products[i] != want[i] {
			t.Errorf("product %d is %x, want %x", i, products[i], want[i])
		}
	}
	requests := append(ecdsaRequests(ecdsaKeys(t, e, elliptic.P256(), 1), n), ecdsaRequests(ecdsaKeys(t, e, elliptic.P384(), 1), n)...)
	e.SignECDSA(requests, nil)
	verifyECDSA(t, requests)
	rsaAll := rsaRequests(rsaKey(t, e, standardRSA(t, 2048)), 4)
	e.SignRSA(rsaAll, nil)
	verifyRSA(t, rsaAll)
	opened := decapsulations(t, e, n)
	e.DecapsulateMLKEM768(opened)
	sameSecrets(t, opened)
	messages := ed25519Requests(t, e, n)
	e.SignEd25519(messages)
	sameEd25519(t, messages)
	checks := ed25519Checks(t, n)
	forge(&checks[3], 0)
	forge(&checks[4], 5)
	e.VerifyEd25519(checks)
	for i, c := range checks {
		if c.Valid != (i != 3 && i != 4) {
			t.Errorf("check %d: %v", i, c.Valid)
		}
	}
	if s := e.Stats(); s != (Stats{CPU: n + 2*n + 4 + n + n + n}) {
		t.Errorf("%+v", s)
	}
	p521, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.NewECDSAKey(p521); err == nil {
		t.Error("a key on P-521 is taken")
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// TestSmallCallsStayOnTheCPU: below the switch point, which is one of the configuration or of the kind of operation.
func TestSmallCallsStayOnTheCPU(t *testing.T) {
	b := openFake(t, Config{Batch: 4, Least: 3})
	for _, n := range []int{2, 3} {
		scalars, points, products, want := random32(1, n), random32(2, n), make([][32]byte, n), make([][32]byte, n)
		x25519Standard(t, want, scalars, points)
		b.X25519(products, scalars, points)
		if !slices.Equal(products, want) {
			t.Errorf("%x, want %x", products, want)
		}
	}
	if s := b.Stats(); s != (Stats{Device: 3, CPU: 2}) {
		t.Errorf("%+v", s)
	}
	b.cfg.Least = 0
	tasks := []*task{&x25519Task, p256.task, p384.task, &ed25519Task, &commitTask, &respondTask, &mlkemTask, &decapsulateTask}
	for _, bits := range []int{2048, 3072, 4096} {
		tasks = append(tasks, rsaTasks[bits])
	}
	if len(costs) != len(tasks) {
		t.Errorf("%d costs of %d tasks", len(costs), len(tasks))
	}
	for _, k := range tasks {
		if costs[k.name].core <= 0 || b.least(k) < 4*runtime.GOMAXPROCS(0) {
			t.Errorf("%s: %+v, at least %d", k.name, costs[k.name], b.least(k))
		}
	}
}
