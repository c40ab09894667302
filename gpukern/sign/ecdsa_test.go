package sign

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/fips140"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// curveKey returns a key on a curve, made once.
func curveKey(t testing.TB, name string) *ecdsa.PrivateKey {
	t.Helper()
	make, _ := keys.LoadOrStore(name, sync.OnceValues(func() (*ecdsa.PrivateKey, error) {
		curve := map[string]elliptic.Curve{"P-224": elliptic.P224(), "P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}[name]
		return ecdsa.GenerateKey(curve, rand.Reader)
	}))
	k, err := make.(func() (*ecdsa.PrivateKey, error))()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// ecdsaKey returns a key with its table.
func ecdsaKey(t testing.TB, name string) *ECDSAKey {
	t.Helper()
	k, err := NewECDSAKey(curveKey(t, name))
	if err != nil {
		t.Fatal(err)
	}
	k.prepare()
	return k
}

// TestKeysThatAreUsedHaveTables: the first signatures of a key are those of crypto/ecdsa, which needs no table.
func TestKeysThatAreUsedHaveTables(t *testing.T) {
	k, err := NewECDSAKey(curveKey(t, "P-256"))
	if err != nil {
		t.Fatal(err)
	}
	var b Batch
	for i := range usesAlone + 8 {
		r := ecdsaRequest(k, i)
		defer verifyECDSA(t, r)
		b.Add(r)
		if i%4 == 3 {
			b.Run()
			want := Stats{Alone: uint64(i + 1)}
			if i >= usesAlone {
				want = Stats{Alone: usesAlone, Signatures: uint64(i + 1 - usesAlone), Passes: uint64(i+1-usesAlone) / 4}
			}
			if b.Stats() != want {
				t.Errorf("%d signatures: %+v, want %+v", i+1, b.Stats(), want)
			}
		}
	}
	s := NewSigner(curveKey(t, "P-256"))
	s.Prepare()
	if !s.batch.(*ECDSAKey).ready() {
		t.Error("no table after Prepare")
	}
	NewSigner(curveKey(t, "P-521")).Prepare() // has nothing to prepare
	NewRSASigner(keyOf(t, 2048)).Prepare()
}

// TestTablesAreBounded: beyond mostTables keys sign without one, and tables of keys that are gone do not count.
func TestTablesAreBounded(t *testing.T) {
	before := settledTables()
	func() {
		k := ecdsaKey(t, "P-256")
		if tables.Load() != before+1 {
			t.Errorf("%d tables, want %d", tables.Load(), before+1)
		}
		runtime.KeepAlive(k)
	}()
	tables.Add(mostTables)
	k := ecdsaKey(t, "P-256")
	if k.ready() || tables.Load() > before+1+mostTables {
		t.Errorf("a table beyond the bound; %d", tables.Load())
	}
	var b Batch
	requests := []*Request{ecdsaRequest(k, 1), ecdsaRequest(k, 2)}
	for _, r := range requests {
		b.Add(r)
	}
	b.Run()
	for _, r := range requests {
		verifyECDSA(t, r)
	}
	if b.Stats() != (Stats{Alone: 2}) {
		t.Errorf("%+v", b.Stats())
	}
	tables.Add(-mostTables)
	for tables.Load() > before { // the test's own, and what other tests have left
		runtime.GC()
		runtime.Gosched()
	}
}

// settledTables returns how many tables there are when those that other tests have left are gone: their cleanups run beside this test.
func settledTables() int64 {
	for n, still := tables.Load(), 0; ; {
		runtime.GC()
		time.Sleep(time.Millisecond)
		if now := tables.Load(); now != n {
			n, still = now, 0
		} else if still++; still == 5 {
			return n
		}
	}
}

// ecdsaRequest returns a request with one of the hashes.
func ecdsaRequest(k *ECDSAKey, i int) *Request {
	h := hashes[i%len(hashes)]
	d := h.New()
	fmt.Fprint(d, i)
	return &Request{Key: k, Random: rand.Reader, Digest: d.Sum(nil), Opts: h}
}

func verifyECDSA(t *testing.T, r *Request) {
	t.Helper()
	key := r.Key.(*ECDSAKey).key
	if r.Err != nil || !ecdsa.VerifyASN1(&key.PublicKey, r.Digest, r.Signature) {
		t.Errorf("%s, digest of %d bytes: %v, crypto/ecdsa refuses %x", key.Params().Name, len(r.Digest), r.Err, r.Signature)
	}
}

// TestSignaturesOfECDSAVerify has keys of both curves and of RSA in one batch.
func TestSignaturesOfECDSAVerify(t *testing.T) {
	all := make([]*Request, 0, 64)
	var b Batch
	rounds := 11
	if !Supported() {
		rounds = 2
	}
	p256, p384, rsaKey := ecdsaKey(t, "P-256"), ecdsaKey(t, "P-384"), batchKey(t, 2048)
	for i := range rounds {
		all = append(all, ecdsaRequest(p256, i), request(rsaKey, i), ecdsaRequest(p384, i), ecdsaRequest(p256, i))
	}
	for _, r := range all {
		b.Add(r)
	}
	b.Run()
	for _, r := range all {
		if r.Key == Key(rsaKey) {
			verify(t, keyOf(t, 2048), r)
		} else {
			verifyECDSA(t, r)
		}
	}
	s := b.Stats()
	if s.Signatures+s.Alone != uint64(len(all)) || s.Faults != 0 {
		t.Errorf("%+v of %d", s, len(all))
	}
}

// TestEightOfECDSASharePasses: requests on one curve are signed eight at once, whatever their keys, and too few alone.
func TestEightOfECDSASharePasses(t *testing.T) {
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	second, err := NewECDSAKey(other)
	if err != nil {
		t.Fatal(err)
	}
	second.prepare()
	p256, p384 := ecdsaKey(t, "P-256"), ecdsaKey(t, "P-384")
	for _, c := range []struct {
		keys []*ECDSAKey
		want Stats
	}{
		{[]*ECDSAKey{p256}, Stats{Alone: 1}},
		{[]*ECDSAKey{p384}, Stats{Signatures: 1, Passes: 1}},
		{[]*ECDSAKey{p256, p256}, Stats{Signatures: 2, Passes: 1}},
		{[]*ECDSAKey{p256, second, p256, second, p256, second, p256, second}, Stats{Signatures: 8, Passes: 1}},
		{[]*ECDSAKey{p256, p256, p256, p256, p256, p256, p256, p256, p256}, Stats{Signatures: 8, Passes: 1, Alone: 1}},
		{[]*ECDSAKey{p256, p384, p256, p384}, Stats{Signatures: 4, Passes: 2}},
	} {
		var b Batch
		var all []*Request
		for i, k := range c.keys {
			r := ecdsaRequest(k, i)
			all = append(all, r)
			b.Add(r)
		}
		b.Run()
		if b.Stats() != c.want {
			t.Errorf("%d requests: %+v, want %+v", len(c.keys), b.Stats(), c.want)
		}
		for _, r := range all {
			verifyECDSA(t, r)
		}
	}
}

// TestAFaultSpoilsThePass: with a wrong key in it, a pass has no signature, and each is made again one at a time.
func TestAFaultSpoilsThePass(t *testing.T) {
	for _, name := range []string{"P-256", "P-384"} {
		whole := ecdsaKey(t, name)
		wrong, err := NewECDSAKey(curveKey(t, name))
		if err != nil {
			t.Fatal(err)
		}
		wrong.private[7] ^= 1
		wrong.prepare()
		signer := NewSigner(curveKey(t, name))
		signer.batch, signer.state = wrong, prepared
		var b Batch
		requests := []*Request{ecdsaRequest(wrong, 1), ecdsaRequest(whole, 2)}
		for _, r := range requests {
			b.Add(r)
		}
		b.Run()
		for _, r := range requests {
			if r.Err != ErrFault || r.Signature != nil {
				t.Errorf("%s: %v, %x", name, r.Err, r.Signature)
			}
			signature, err := signer.Result(r)
			if err != nil || !ecdsa.VerifyASN1(&curveKey(t, name).PublicKey, r.Digest, signature) {
				t.Errorf("%s: made again: %v, %x", name, err, signature)
			}
		}
		if s := b.Stats(); s != (Stats{Passes: 1, Faults: 2}) || signer.Faults() != 2 {
			t.Errorf("%s: %+v, %d faults", name, s, signer.Faults())
		}
	}
}

// TestRandomThatFails fails its own request and no other.
func TestRandomThatFails(t *testing.T) {
	for _, name := range []string{"P-256", "P-384"} {
		k := ecdsaKey(t, name)
		var b Batch
		bad, good, another := ecdsaRequest(k, 1), ecdsaRequest(k, 2), ecdsaRequest(k, 3)
		bad.Random = failing{}
		b.Add(bad)
		b.Add(good)
		b.Add(another)
		b.Run()
		if !errors.Is(bad.Err, io.ErrNoProgress) || bad.Signature != nil {
			t.Errorf("%s: %v, %x", name, bad.Err, bad.Signature)
		}
		verifyECDSA(t, good)
		verifyECDSA(t, another)
		only := &Request{Key: k, Random: failing{}, Digest: bad.Digest, Opts: bad.Opts}
		p := b.pass(k.curve())
		signTogether(p, []*Request{only})
		if only.Err == nil {
			t.Errorf("%s: a pass of one request that fails: %v", name, only.Err)
		}
	}
}

// TestDeterministicSignatures: without random, the signatures are those of RFC 6979.
func TestDeterministicSignatures(t *testing.T) {
	for _, name := range []string{"P-256", "P-384"} {
		k := ecdsaKey(t, name)
		var b Batch
		var all []*Request
		for i := range 6 {
			r := ecdsaRequest(k, i)
			if i%3 > 0 {
				r.Random = nil
			}
			all = append(all, r)
			b.Add(r)
		}
		b.Run()
		for i, r := range all {
			verifyECDSA(t, r)
			want, err := k.key.Sign(nil, r.Digest, r.Opts)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Equal(r.Signature, want) != (i%3 > 0) {
				t.Errorf("%s, request %d: %x, of RFC 6979 is %x", name, i, r.Signature, want)
			}
		}
	}
}

// constant is a source of randomness that repeats.
type constant byte

func (c constant) Read(p []byte) (int, error) {
	copy(p, bytes.Repeat([]byte{byte(c)}, len(p)))
	return len(p), nil
}

// TestNonces: a nonce is SHA-512 of a counter, random bytes, the private key and the digest, so that no two are the same
// while any of these differs.
func TestNonces(t *testing.T) {
	for _, name := range []string{"P-256", "P-384"} {
		k := ecdsaKey(t, name)
		size := len(k.private)
		seen := map[string]string{}
		for _, random := range []constant{0, 1} {
			for _, private := range []byte{0, 1} {
				for _, length := range []int{0, 20, 32, 64} {
					for _, last := range []byte{0, 1} {
						digest := make([]byte, length)
						if length > 0 {
							digest[length-1] = last
						} else if last > 0 {
							continue
						}
						own := ecdsaKey(t, name)
						own.private[size-1] ^= private
						nonce := make([]byte, 2*size)
						if err := own.nonce(nonce, random, digest); err != nil {
							t.Fatal(err)
						}
						what := fmt.Sprint(random, private, length, last)
						if other, ok := seen[string(nonce)]; ok {
							t.Errorf("%s: one nonce for %s and %s", name, what, other)
						}
						seen[string(nonce)] = what
						if want := wantNonce(own.private, byte(random), digest); !bytes.Equal(nonce, want[:2*size]) {
							t.Errorf("%s, %s: %x, want %x", name, what, nonce, want[:2*size])
						}
					}
				}
			}
		}
	}
}

func wantNonce(private []byte, random byte, digest []byte) (nonce []byte) {
	for counter := range byte(2) {
		text := append([]byte{counter}, bytes.Repeat([]byte{random}, 32)...)
		sum := sha512.Sum512(append(append(text, private...), digest...))
		nonce = append(nonce, sum[:]...)
	}
	return nonce
}

// TestRandomThatRepeats still gives signatures of different digests different nonces: r differs.
func TestRandomThatRepeats(t *testing.T) {
	k := ecdsaKey(t, "P-256")
	var b Batch
	seen := map[string]bool{}
	var all []*Request
	for i := range 8 {
		r := ecdsaRequest(k, i)
		r.Random = constant(7)
		all = append(all, r)
		b.Add(r)
	}
	b.Run()
	for _, r := range all {
		verifyECDSA(t, r)
		seen[string(r.Signature[4:20])] = true
	}
	if len(seen) != len(all) {
		t.Errorf("%d different r of %d", len(seen), len(all))
	}
}

// TestEncodingOfECDSA compares the DER with crypto/ecdsa's parser, for numbers with leading zeros and leading ones.
func TestEncodingOfECDSA(t *testing.T) {
	for size, want := range map[int]map[string]string{
		2: {
			"00010001": "3006020101020101", "00800001": "300702020080020101", "8000ffff": "300a02030080000203 00ffff",
			"00000000": "3006020100020100", "7fff0080": "3008 02027fff 02020080", "01000000": "30070202 0100 020100",
		},
	} {
		for in, out := range want {
			n, _ := new(big.Int).SetString(in, 16)
			p := n.FillBytes(make([]byte, 2*size))
			got := EncodeECDSA(p[:size], p[size:])
			if text := fmt.Sprintf("%x", got); text != string(bytes.ReplaceAll([]byte(out), []byte(" "), nil)) {
				t.Errorf("%s: %s, want %s", in, text, out)
			}
		}
	}
	long := EncodeECDSA(bytes.Repeat([]byte{0xff}, 48), bytes.Repeat([]byte{0xff}, 48))
	if len(long) != 104 || long[1] != 102 {
		t.Errorf("the longest is %x", long)
	}
}

func TestCurvesThatAreRefused(t *testing.T) {
	for _, name := range []string{"P-224", "P-521"} {
		key := curveKey(t, name)
		if _, err := NewECDSAKey(key); !errors.Is(err, ErrUnsuited) {
			t.Errorf("%s: %v", name, err)
		}
		s := NewSigner(key)
		d := sha256.Sum256([]byte(name))
		if s.Request(rand.Reader, d[:], crypto.SHA256) != nil {
			t.Errorf("%s: a request", name)
		}
		signature, err := s.Sign(rand.Reader, d[:], crypto.SHA256)
		if err != nil || !ecdsa.VerifyASN1(&key.PublicKey, d[:], signature) {
			t.Errorf("%s: %v, %x", name, err, signature)
		}
	}
}

// TestSignerOfECDSA signs from several goroutines.
func TestSignerOfECDSA(t *testing.T) {
	for _, name := range []string{"P-256", "P-384"} {
		key := curveKey(t, name)
		s := NewSigner(key)
		d := sha256.Sum256([]byte(name))
		var wait sync.WaitGroup
		for range 4 {
			wait.Go(func() {
				for range 3 {
					signature, err := s.Sign(rand.Reader, d[:], crypto.SHA256)
					if err != nil || !ecdsa.VerifyASN1(&key.PublicKey, d[:], signature) {
						t.Errorf("%s: %v, %x", name, err, signature)
					}
				}
			})
		}
		wait.Wait()
	}
}

// TestNoSecretOfECDSAStays reads the memory of the passes after a run, and of a key after Clear.
func TestNoSecretOfECDSAStays(t *testing.T) {
	var b Batch
	k := ecdsaKey(t, "P-256")
	b.Add(ecdsaRequest(k, 1))
	b.Add(ecdsaRequest(k, 2))
	b.Run()
	if len(b.passes) != 1 {
		t.Fatalf("%d passes", len(b.passes))
	}
	for _, p := range b.passes {
		rows := reflect.ValueOf(p).Elem().FieldByName("rows")
		for i := range rows.Len() {
			if !rows.Index(i).IsZero() {
				t.Fatalf("row %d of the pass is not zero", i)
			}
		}
	}
	k.Clear()
	d := reflect.ValueOf(k.digits.Load()).Elem().FieldByName("d")
	for i := range d.Len() {
		if d.Index(i).Uint() != 0 {
			t.Error("digits of the private key are still there")
		}
	}
	if !bytes.Equal(k.private, make([]byte, 32)) {
		t.Error("the private key is still there")
	}
	ecdsaKey(t, "P-384").Clear() // before it was used
}

// cpuTime returns the CPU time of the process in ns: other processes may have the CPU meanwhile.
func cpuTime() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return t.Nano()
}

// BenchmarkSignECDSA makes n signatures at once; those of crypto/ecdsa one after the other.
func BenchmarkSignECDSA(b *testing.B) {
	d := sha256.Sum256(nil)
	for _, name := range []string{"P-256", "P-384"} {
		k := ecdsaKey(b, name)
		k.fewest = 1
		for _, n := range []int{1, 2, 3, 4, 8} {
			b.Run(fmt.Sprintf("%s/%d at once", name, n), func(b *testing.B) {
				var batch Batch
				start := cpuTime()
				for b.Loop() {
					for range n {
						batch.Add(&Request{Key: k, Random: rand.Reader, Digest: d[:], Opts: crypto.SHA256})
					}
					batch.Run()
				}
				b.ReportMetric(float64(cpuTime()-start)/1000/float64(b.N*n), "cpu-us/signature")
			})
		}
		b.Run(name+"/crypto", func(b *testing.B) {
			key := curveKey(b, name)
			start := cpuTime()
			for b.Loop() {
				if _, err := key.Sign(rand.Reader, d[:], crypto.SHA256); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpuTime()-start)/1000/float64(b.N), "cpu-us/signature")
		})
	}
}

// TestKeysInFIPSMode: where only Go's own module may sign, keys stay what they are.
func TestKeysInFIPSMode(t *testing.T) {
	if !fips140.Enabled() {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestKeysInFIPSMode$", "-test.v")
		cmd.Env = append(os.Environ(), "GODEBUG=fips140=on")
		out, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("--- PASS")) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if key := curveKey(t, "P-256"); Wrap(key) != crypto.PrivateKey(key) {
		t.Error("a key is wrapped")
	}
}
