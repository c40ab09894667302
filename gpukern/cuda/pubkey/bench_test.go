package pubkey

import (
	"bytes"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/mlkem"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/gpukern/cuda/offload"
	"github.com/millrace/millrace/gpukern/sign"
	"github.com/millrace/millrace/gpukern/x25519"
)

// The benchmarks measure operations a second on the GPU, from host memory with all that a call does (host), and without
// copies (resident), and on all cores of the CPU by its best form here (cpu). Every result of the last round is verified.
// MILLRACE_PUBKEY_JSON names a file to which each figure is added as a line.

// work is operations of one kind.
type work struct {
	name   string
	n      int                    // operations of a round from host memory
	t      *task                  // for those in device memory
	c      func() *call           // as of the device
	gpu    func(from, to int)     // does operations, by the engine
	cpu    func(from, to int)     // on one core
	verify func(from, to int) int // returns how many are right
}

// figure is a line of the JSON file.
type figure struct {
	Op       string  `json:"op"`
	Form     string  `json:"form"`
	PerS     float64 `json:"per_s"`
	N        int     `json:"n"`
	Verified int     `json:"verified"`
	Ms       float64 `json:"ms"` // of a round
}

// result reports a figure.
func result(b *testing.B, f figure) {
	b.ReportMetric(f.PerS, "ops/s")
	b.ReportMetric(f.Ms, "ms/round")
	b.ReportMetric(0, "ns/op")
	if f.Verified != f.N {
		b.Errorf("%s, %s: %d of %d results are right", f.Op, f.Form, f.Verified, f.N)
	}
	name := os.Getenv("MILLRACE_PUBKEY_JSON")
	if name == "" {
		return
	}
	line, err := json.Marshal(f)
	if err != nil {
		b.Fatal(err)
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write(append(line, '\n')); err != nil {
		b.Fatal(err)
	}
}

// timed returns how long f takes.
func timed(f func()) func() time.Duration {
	return func() time.Duration {
		start := time.Now()
		f()
		return time.Since(start)
	}
}

// rounds measures f, which does n operations and returns the time for it. The first round makes memory and is not counted.
func (w *work) rounds(b *testing.B, form string, n int, f func() time.Duration) {
	f()
	var took time.Duration
	rounds := 0
	for b.Loop() {
		took += f()
		rounds++
	}
	right := make([]int, n)
	offload.Parallel(n, leastDone, func(from, to int) { right[from] = w.verify(from, to) })
	total := 0
	for _, v := range right {
		total += v
	}
	result(b, figure{
		Op: w.name, Form: form, N: n, Verified: total,
		PerS: float64(n*rounds) / took.Seconds(), Ms: took.Seconds() * 1e3 / float64(rounds),
	})
}

// run measures the forms of w.
func (w *work) run(b *testing.B, bed *bed) {
	b.Run("host", func(b *testing.B) { w.rounds(b, "host", w.n, timed(func() { w.gpu(0, w.n) })) })
	for _, n := range []int{64, 1024, 8192} {
		b.Run(fmt.Sprintf("call=%d", n), func(b *testing.B) { w.rounds(b, fmt.Sprintf("call=%d", n), n, timed(func() { w.gpu(0, n) })) })
	}
	if w.t != nil {
		b.Run("resident", func(b *testing.B) { w.resident(b, bed) })
	}
	b.Run("cpu", func(b *testing.B) {
		n := w.n / 16
		w.rounds(b, "cpu", n, timed(func() { offload.Parallel(n, leastDone, w.cpu) }))
	})
}

// resident measures the kernels alone, on inputs that are there.
func (w *work) resident(b *testing.B, bed *bed) {
	n := min(w.n, 1<<16)
	f, err := newFlight(bed.dev, w.t, n)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	c := w.c()
	f.n = n
	offload.Parallel(n, leastCopied, func(from, to int) { c.fill(f, 0, from, to) })
	for _, a := range f.in {
		if err := f.Stream.CopyIn(a.ptr, f.Host, int(a.ptr-f.Dev.Ptr), a.size*n); err != nil {
			b.Fatal(err)
		}
	}
	var marks [2]*cuda.Event
	for i := range marks {
		if marks[i], err = bed.dev.NewEvent(); err != nil {
			b.Fatal(err)
		}
		defer marks[i].Close()
	}
	w.rounds(b, "resident", n, func() time.Duration {
		if err := marks[0].Record(f.Stream); err != nil {
			b.Fatal(err)
		}
		if err := w.t.launch(bed.Engine, f); err != nil {
			b.Fatal(err)
		}
		if err := marks[1].Record(f.Stream); err != nil {
			b.Fatal(err)
		}
		if err := marks[1].Wait(); err != nil {
			b.Fatal(err)
		}
		since, err := marks[1].Since(marks[0])
		if err != nil {
			b.Fatal(err)
		}
		for _, a := range f.out {
			if err := f.Stream.CopyOut(f.Host, int(a.ptr-f.Dev.Ptr), a.ptr, a.size*n); err != nil {
				b.Fatal(err)
			}
		}
		if err := f.Stream.Wait(); err != nil {
			b.Fatal(err)
		}
		offload.Parallel(n, leastCopied, func(from, to int) { c.take(f, 0, from, to) })
		return since
	})
}

func BenchmarkX25519(b *testing.B) {
	bed := newBed(b, cuda.Options{}, Config{})
	const n = 1 << 20
	scalars, points, products, want := random32(1, n), random32(2, n), make([][32]byte, n), make([][32]byte, n)
	offload.Parallel(n, leastDone, func(from, to int) { x25519.MultiplyAll(want[from:to], scalars[from:to], points[from:to]) })
	w := &work{
		name: "X25519", n: n, t: &x25519Task, c: func() *call { return x25519Call(products, scalars, points) },
		gpu: func(from, to int) { bed.X25519(products[from:to], scalars[from:to], points[from:to]) },
		cpu: func(from, to int) { x25519.MultiplyAll(products[from:to], scalars[from:to], points[from:to]) },
		verify: func(from, to int) (right int) {
			for i := from; i < to; i++ {
				if products[i] == want[i] {
					right++
				}
				products[i] = [32]byte{}
			}
			return right
		},
	}
	w.run(b, bed)
}

// signing returns requests of the package sign for the same digests.
func signing(n int, key sign.Key, digest func(i int) []byte, opts func(i int) *sign.Request) []*sign.Request {
	all := make([]*sign.Request, n)
	for i := range all {
		all[i] = opts(i)
		all[i].Key, all[i].Digest, all[i].Random = key, digest(i), rand.Reader
	}
	return all
}

// onCore signs on one core, eight at once.
func onCore(requests []*sign.Request) {
	var b sign.Batch
	for i := 0; i < len(requests); i += 8 {
		for _, r := range requests[i:min(len(requests), i+8)] {
			b.Add(r)
		}
		b.Run()
	}
}

func BenchmarkECDSA(b *testing.B) {
	for _, c := range []struct {
		curve elliptic.Curve
		task  *task
		n     int
	}{{elliptic.P256(), p256.task, 1 << 18}, {elliptic.P384(), p384.task, 1 << 16}} {
		b.Run(c.curve.Params().Name, func(b *testing.B) {
			bed := newBed(b, cuda.Options{}, Config{})
			requests := ecdsaRequests(ecdsaKeys(b, bed.Engine, c.curve, 1), c.n)
			key, err := sign.NewECDSAKey(requests[0].Key.key)
			if err != nil {
				b.Fatal(err)
			}
			others := signing(c.n/16, key, func(i int) []byte { return requests[i].Digest }, func(int) *sign.Request { return &sign.Request{} })
			w := &work{
				name: c.curve.Params().Name + " sign", n: c.n, t: c.task,
				c:   func() *call { return bed.ecdsaCall(requests, nil) },
				gpu: func(from, to int) { bed.SignECDSA(requests[from:to], nil) },
				cpu: func(from, to int) {
					onCore(others[from:to])
					for i := from; i < to; i++ {
						requests[i].Signature, requests[i].Err = others[i].Signature, others[i].Err
					}
				},
				verify: func(from, to int) (right int) {
					for _, r := range requests[from:to] {
						if r.valid() {
							right++
						}
						r.Signature = nil
					}
					return right
				},
			}
			w.run(b, bed)
		})
	}
}

func BenchmarkRSA(b *testing.B) {
	for _, c := range []struct{ bits, n int }{{2048, 1 << 17}, {3072, 1 << 15}, {4096, 1 << 14}} {
		b.Run(fmt.Sprint(c.bits), func(b *testing.B) {
			bed := newBed(b, cuda.Options{}, Config{})
			requests := rsaRequests(rsaKey(b, bed.Engine, standardRSA(b, c.bits)), c.n)
			key, err := sign.NewRSAKey(requests[0].Key.key)
			if err != nil {
				b.Fatal(err)
			}
			others := signing(c.n/16, key, func(i int) []byte { return requests[i].Digest }, func(i int) *sign.Request { return &sign.Request{Opts: requests[i].Opts} })
			w := &work{
				name: fmt.Sprintf("RSA-%d sign", c.bits), n: c.n, t: rsaTasks[c.bits],
				c:   func() *call { return bed.rsaCall(requests, nil) },
				gpu: func(from, to int) { bed.SignRSA(requests[from:to], nil) },
				cpu: func(from, to int) {
					onCore(others[from:to])
					for i := from; i < to; i++ {
						requests[i].Signature, requests[i].Err = others[i].Signature, others[i].Err
					}
				},
				verify: func(from, to int) (right int) {
					for _, r := range requests[from:to] {
						if r.valid() {
							right++
						}
						r.Signature = nil
					}
					return right
				},
			}
			w.run(b, bed)
		})
	}
}

func BenchmarkEd25519Verify(b *testing.B) {
	bed := newBed(b, cuda.Options{}, Config{})
	const n = 1 << 19
	checks := ed25519Checks(b, n)
	for i := 5; i < n; i += 100 {
		forge(&checks[i], i/100)
	}
	w := &work{
		name: "Ed25519 verify", n: n, t: &ed25519Task, c: func() *call { return ed25519Call(checks) },
		gpu: func(from, to int) { bed.VerifyEd25519(checks[from:to]) },
		cpu: func(from, to int) {
			for i := from; i < to; i++ {
				c := &checks[i]
				c.Valid = c.wellFormed() && ed25519.Verify(c.Key, c.Message, c.Signature)
			}
		},
		verify: func(from, to int) (right int) {
			for i := from; i < to; i++ {
				if checks[i].Valid == (i%100 != 5) {
					right++
				}
				checks[i].Valid = i%100 == 5
			}
			return right
		},
	}
	w.run(b, bed)
}

// BenchmarkEd25519Sign has two launches for each signature, with the host's hash between them.
func BenchmarkEd25519Sign(b *testing.B) {
	bed := newBed(b, cuda.Options{}, Config{})
	const n = 1 << 18
	requests := ed25519Requests(b, bed.Engine, n)
	w := &work{
		name: "Ed25519 sign", n: n,
		gpu: func(from, to int) { bed.SignEd25519(requests[from:to]) },
		cpu: func(from, to int) { signEd25519CPU(requests[from:to]) },
		verify: func(from, to int) (right int) {
			for _, r := range requests[from:to] {
				if ed25519.Verify(r.Key.key.Public().(ed25519.PublicKey), r.Message, r.Signature) {
					right++
				}
				r.Signature = nil
			}
			return right
		},
	}
	w.run(b, bed)
}

func BenchmarkMLKEM768Encapsulate(b *testing.B) {
	bed := newBed(b, cuda.Options{}, Config{})
	const n = 1 << 18
	keys := kemKeys(b, 64)
	encoded := make([][]byte, len(keys))
	publics := make([]*mlkem.EncapsulationKey768, len(keys))
	for i, k := range keys {
		publics[i] = k.EncapsulationKey()
		encoded[i] = publics[i].Bytes()
	}
	all := make([]Encapsulation, n)
	for i := range all {
		all[i].Key = encoded[i%len(keys)]
	}
	w := &work{
		name: "ML-KEM-768 encaps", n: n, t: &mlkemTask, c: func() *call { return mlkemCall(all, nil) },
		gpu: func(from, to int) { bed.EncapsulateMLKEM768(all[from:to], nil) },
		cpu: func(from, to int) {
			for i := from; i < to; i++ {
				all[i].onCPU()
			}
		},
		verify: func(from, to int) (right int) {
			for i := from; i < to; i++ {
				shared, err := keys[i%len(keys)].Decapsulate(all[i].Ciphertext[:])
				if err == nil && all[i].Err == nil && bytes.Equal(shared, all[i].Shared[:]) {
					right++
				}
				all[i].Ciphertext = [mlkem.CiphertextSize768]byte{}
			}
			return right
		},
	}
	w.run(b, bed)
}

func BenchmarkMLKEM768Decapsulate(b *testing.B) {
	bed := newBed(b, cuda.Options{}, Config{})
	const n = 1 << 17
	all := decapsulations(b, bed.Engine, n)
	placed, want := make([]*Decapsulation, n), make([][32]byte, n)
	for i := range all {
		placed[i] = &all[i]
	}
	offload.Parallel(n, leastDone, func(from, to int) { decapsulateCPU(placed[from:to]) })
	for i := range all {
		want[i] = all[i].Shared
	}
	w := &work{
		name: "ML-KEM-768 decaps", n: n, t: &decapsulateTask, c: func() *call { return decapsulateCall(placed) },
		gpu: func(from, to int) { bed.DecapsulateMLKEM768(all[from:to]) },
		cpu: func(from, to int) { decapsulateCPU(placed[from:to]) },
		verify: func(from, to int) (right int) {
			for i := from; i < to; i++ {
				if all[i].Err == nil && all[i].Shared == want[i] {
					right++
				}
				all[i].Shared = [32]byte{}
			}
			return right
		},
	}
	w.run(b, bed)
}
