package ed25519

import (
	standard "crypto/ed25519"
	"crypto/rand"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/gpukern/field25519"
	"github.com/millrace/millrace/internal/testkit/consttime"
	"github.com/millrace/millrace/internal/testkit/wycheproof"
)

// forms runs a test by the ways of computing that this machine has.
func forms(t *testing.T, test func(t *testing.T)) {
	best := form
	defer func() { form = best }()
	for _, form = range field25519.Forms() {
		t.Run(form.Name(), test)
	}
}

func newKey(t testing.TB) (standard.PrivateKey, *Key) {
	t.Helper()
	_, key, err := standard.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	k, err := NewKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return key, k
}

// TestSignaturesAreThoseOfTheStandard: any number of them, by keys that differ.
func TestSignaturesAreThoseOfTheStandard(t *testing.T) {
	forms(t, func(t *testing.T) {
		var keys [3]standard.PrivateKey
		var own [3]*Key
		for i := range keys {
			keys[i], own[i] = newKey(t)
		}
		p := NewPass()
		for n := 1; n <= p.Lanes(); n++ {
			requests := make([]Request, n)
			for i := range requests {
				requests[i] = Request{Key: own[(n+i)%3], Message: fmt.Append(nil, "message ", n, i)}
			}
			p.Sign(requests)
			for i, r := range requests {
				if want := standard.Sign(keys[(n+i)%3], r.Message); !r.Right || string(r.Signature[:]) != string(want) {
					t.Fatalf("%d of %d: right %v, %x, want %x", i, n, r.Right, r.Signature, want)
				}
			}
		}
		for i, row := range p.rows {
			if row != (field25519.Row{}) {
				t.Fatalf("row %d is %x after a pass", i, row)
			}
		}
		if p.r != [MaxLanes]scalar{} {
			t.Error("a nonce is still there")
		}
	})
}

// TestFaultsAreFound: no signature leaves that was made with a wrong table of the generator, key or table of the key.
func TestFaultsAreFound(t *testing.T) {
	for name, spoil := range map[string]func(p *Pass, k *Key) (undo func()){
		"key": func(_ *Pass, k *Key) func() { k.a[1] ^= 1 << 7; return func() {} },
		"generator": func(p *Pass, _ *Key) func() {
			was := p.generator
			p.generator = slices.Clone(was)
			for i := range p.generator.window(5) {
				p.generator.window(5)[i] ^= 1
			}
			return func() { p.generator = was }
		},
		"table": func(_ *Pass, k *Key) func() {
			for i := range k.inverse.window(5) {
				k.inverse.window(5)[i] ^= 1
			}
			return func() {}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := NewPass()
			_, good := newKey(t)
			_, bad := newKey(t)
			undo := spoil(p, bad)
			requests := []Request{{Key: bad, Message: []byte("a")}, {Key: good, Message: []byte("b")}}
			p.Sign(requests)
			undo()
			if requests[0].Right || requests[0].Signature != [64]byte{} {
				t.Errorf("a wrong signature leaves: %x", requests[0].Signature)
			}
			if name != "generator" && !requests[1].Right {
				t.Error("another one is refused")
			}
		})
	}
}

// forge makes a right signature a wrong one, in the i-th way.
func forge(c *Check, i int) {
	s := slices.Clone(c.Signature)
	switch i % 8 {
	case 0:
		s[i%32] ^= 1 << (i % 8) // R
	case 1:
		s[32+i%31] ^= 1 << (i % 8) // s
	case 2:
		c.Message = append(c.Message, 'x')
	case 3: // s + order: the same to a verifier that reduces it
		v := new(big.Int).SetBytes(reversed(s[32:]))
		l := new(big.Int)
		for i := range order {
			l.Add(l.Lsh(l, 64), new(big.Int).SetUint64(order[3-i]))
		}
		copy(s[32:], reversed(v.Add(v, l).FillBytes(make([]byte, 32))))
	case 4:
		k := slices.Clone(c.Key)
		k[i%31] ^= 1 << (i % 8)
		c.Key = k
	case 5:
		s = s[:63]
	case 6:
		c.Key = c.Key[:31]
	case 7:
		s[31] ^= 0x80 // the sign of R's x
	}
	c.Signature = s
}

func reversed(b []byte) []byte {
	r := slices.Clone(b)
	slices.Reverse(r)
	return r
}

// TestForgedSignaturesAreFoundOneByOne has forged ones among right ones.
func TestForgedSignaturesAreFoundOneByOne(t *testing.T) {
	forms(t, func(t *testing.T) {
		n := 203
		if !form.Vector() {
			n = 19
		}
		checks := make([]Check, n)
		for i := range checks {
			c := &checks[i]
			var key standard.PrivateKey
			c.Key, key, _ = standard.GenerateKey(rand.Reader)
			c.Message = fmt.Append(nil, i)
			c.Signature = standard.Sign(key, c.Message)
			if i%3 == 1 {
				forge(c, i/3)
			}
			c.Valid = i%3 == 1 // that nothing keeps what was there
		}
		p := NewPass()
		for i := 0; i < n; i += p.Lanes() {
			p.Verify(checks[i:min(n, i+p.Lanes())])
		}
		again := slices.Clone(checks)
		VerifyAll(again)
		for i, c := range checks {
			if c.Valid != (i%3 != 1) || again[i].Valid != c.Valid {
				t.Errorf("%d (forged in way %d): %v, %v", i, i/3%8, c.Valid, again[i].Valid)
			}
		}
	})
}

// TestPointsOfLowOrder: crypto/ed25519 takes them, and has the last word on each.
func TestPointsOfLowOrder(t *testing.T) {
	forms(t, func(t *testing.T) {
		decode := func(s string) []byte {
			b, err := hex.DecodeString(s)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		var checks []Check
		for _, y := range []string{
			"0100000000000000000000000000000000000000000000000000000000000000", // the neutral point
			"0100000000000000000000000000000000000000000000000000000000000080", // with the sign of a zero
			"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
			"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", // 1, not below the prime
			"0000000000000000000000000000000000000000000000000000000000000000",
			"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
			"0200000000000000000000000000000000000000000000000000000000000000", // no point
		} {
			for _, r := range []string{y, "0100000000000000000000000000000000000000000000000000000000000000"} {
				for m := range 4 {
					checks = append(checks, Check{Key: decode(y), Message: []byte{byte(m)}, Signature: append(decode(r), make([]byte, 32)...)})
				}
			}
		}
		p, taken := NewPass(), 0
		for i := 0; i < len(checks); i += p.Lanes() {
			p.Verify(checks[i:min(len(checks), i+p.Lanes())])
		}
		for i, c := range checks {
			if want := standard.Verify(c.Key, c.Message, c.Signature); c.Valid != want {
				t.Errorf("%d: %v, crypto/ed25519 says %v: %+v", i, c.Valid, want, c)
			} else if want {
				taken++
			}
		}
		if taken < 4 {
			t.Errorf("%d are right", taken)
		}
	})
}

// TestScalarsAreThoseOfBig reduces 64 bytes, and multiplies.
func TestScalarsAreThoseOfBig(t *testing.T) {
	l := new(big.Int)
	for i := range order {
		l.Add(l.Lsh(l, 64), new(big.Int).SetUint64(order[3-i]))
	}
	number := func(s scalar) *big.Int {
		var b [32]byte
		s.put(b[:])
		return new(big.Int).SetBytes(reversed(b[:]))
	}
	for i := range 200 {
		var wide [64]byte
		if rand.Read(wide[:]); i < 2 {
			wide = sha512.Sum512(nil)
			for j := range wide {
				wide[j] = byte(-i)
			}
		}
		got := reduce(&wide)
		want := new(big.Int).SetBytes(reversed(wide[:]))
		if want.Mod(want, l); number(got).Cmp(want) != 0 || !got.reduced() {
			t.Fatalf("%x modulo the order is %x, want %x", wide, number(got), want)
		}
		a := scalarOf(wide[:32])
		aR := product(&a, &r2)
		got = product(&got, &aR)
		want.Mul(want, number(a))
		if want.Mod(want, l); number(got).Cmp(want) != 0 {
			t.Fatalf("the product is %x, want %x", number(got), want)
		}
	}
	if s := order; s.reduced() {
		t.Error("the order is below itself")
	}
}

func TestKeysThatAreNone(t *testing.T) {
	key, own := newKey(t)
	if _, err := NewKey(key[:63]); err == nil {
		t.Error("a key of 63 bytes is taken")
	}
	broken := slices.Clone(key)
	copy(broken[32:], little32("0000000000000000000000000000000000000000000000000000000000000002"))
	if _, err := NewKey(broken); err == nil {
		t.Error("a public key that is no point is taken")
	}
	if own.Clear(); own.a != (scalar{}) || own.prefix != [32]byte{} {
		t.Error("Clear leaves the key")
	}
}

func little32(digits string) []byte { b := little(digits); return b[:] }

// cpuTime returns the CPU time of the process in ns: other processes may have the CPU meanwhile.
func cpuTime() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return t.Nano()
}

// measure reports the CPU time of an operation of n at once.
func measure(b *testing.B, n int, run func()) {
	start := cpuTime()
	for b.Loop() {
		run()
	}
	b.ReportMetric(float64(cpuTime()-start)/1000/float64(n*b.N), "cpu-us/op")
}

// BenchmarkSign reports the CPU time of a signature with its verification, by how many are made at once, beside crypto/ed25519, which
// does not verify.
func BenchmarkSign(b *testing.B) {
	key, own := newKey(b)
	message := make([]byte, 130) // of a CertificateVerify (RFC 8446 4.4.3)
	best := form
	defer func() { form = best }()
	for _, form = range field25519.Forms() {
		if !form.Vector() {
			continue
		}
		_, own = newKey(b)
		p := NewPass()
		for n := 1; n <= p.Lanes(); n++ {
			requests := make([]Request, n)
			for i := range requests {
				requests[i] = Request{Key: own, Message: message}
			}
			b.Run(fmt.Sprint(form.Name(), "/", n), func(b *testing.B) { measure(b, n, func() { p.Sign(requests) }) })
		}
	}
	b.Run("crypto", func(b *testing.B) { measure(b, 1, func() { standard.Sign(key, message) }) })
}

// BenchmarkVerify is BenchmarkSign for verification.
func BenchmarkVerify(b *testing.B) {
	key, _ := newKey(b)
	message := make([]byte, 130)
	check := Check{Key: key.Public().(standard.PublicKey), Message: message, Signature: standard.Sign(key, message)}
	best := form
	defer func() { form = best }()
	for _, form = range field25519.Forms() {
		if !form.Vector() {
			continue
		}
		p := NewPass()
		for n := 1; n <= p.Lanes(); n++ {
			checks := slices.Repeat([]Check{check}, n)
			b.Run(fmt.Sprint(form.Name(), "/", n), func(b *testing.B) { measure(b, n, func() { p.Verify(checks) }) })
		}
	}
	b.Run("crypto", func(b *testing.B) { measure(b, 1, func() { standard.Verify(check.Key, message, check.Signature) }) })
}

// BenchmarkNewKey reports what a key's table takes.
func BenchmarkNewKey(b *testing.B) {
	key, _ := newKey(b)
	measure(b, 1, func() {
		if _, err := NewKey(key); err != nil {
			b.Fatal(err)
		}
	})
}

// TestWycheproof verifies right and forged signatures.
func TestWycheproof(t *testing.T) {
	forms(t, func(t *testing.T) {
		p, n := NewPass(), 0
		for _, g := range wycheproof.Groups(t, "ed25519_test.json") {
			for _, v := range g.Tests {
				check := []Check{{Key: standard.PublicKey(g.PublicKey.PK), Message: v.Msg, Signature: v.Sig}}
				if n++; !form.Vector() && n%8 != 0 {
					continue
				}
				if p.Verify(check); check[0].Valid != (v.Result == "valid") {
					t.Errorf("test %d (%s): %v", v.TcID, v.Result, check[0].Valid)
				}
			}
		}
		if n < 151 {
			t.Errorf("%d vectors", n)
		}
	})
}

func TestMain(m *testing.M) {
	consttime.Subject("sign", func(secret int) func() {
		key := standard.NewKeyFromSeed(slices.Repeat([]byte{[...]byte{0, 255, 0x5a}[secret]}, 32))
		own, err := NewKey(key)
		if err != nil {
			panic(err)
		}
		p := NewPass()
		requests := []Request{{Key: own, Message: []byte("message")}} // all lanes are computed
		return func() { p.nonces(requests) }
	})
	os.Exit(consttime.Main(m))
}

// straight are the operations of the field, in assembly without a branch but on counters, what only calls them, and Go's hash.
var straight = []string{"IFMA", "AVX2", ".(*arithmetic).addEntry", "sha512.New", "sha512.(*Digest).Write", "sha512.(*Digest).Sum"}

func TestBranchesDependOnNoSecret(t *testing.T) {
	if !form.Vector() {
		t.Skip("this CPU has no lanes")
	}
	consttime.Branches(t, "sign", 2, []string{"github.com/millrace/millrace/gpukern/"}, nil, straight)
}

func TestTimeDependsOnNoSecret(t *testing.T) {
	if !form.Vector() {
		t.Skip("this CPU has no lanes")
	}
	// All keys are prepared before: that takes different times.
	p := NewPass()
	var classes [2][16]*Key
	for class := range classes {
		for i := range classes[class] {
			_, classes[class][i] = newKey(t)
			if class == 0 {
				clear(classes[class][i].a[:])
			}
		}
	}
	requests := make([]Request, p.Lanes())
	consttime.Timing(t, func(class int) {
		for i := range requests {
			requests[i] = Request{Key: classes[class][mathrand.IntN(16)], Message: []byte("message")}
		}
	}, func() { p.nonces(requests) })
}

// TestFaultsOfTheHostAreFound: in the encoding of R or in either coordinate, with all else computed from it.
func TestFaultsOfTheHostAreFound(t *testing.T) {
	for name, spoil := range map[string]func(p *Pass, encoding *[32]byte){
		"encoding": func(_ *Pass, encoding *[32]byte) { encoding[3] ^= 1 },
		"x": func(p *Pass, encoding *[32]byte) {
			copy(p.key.x, p.c.two)
			p.encodeLane(encoding, &p.key, 0)
		},
		"y": func(p *Pass, encoding *[32]byte) {
			copy(p.key.y, p.c.two)
			p.encodeLane(encoding, &p.key, 0)
		},
		"none": func(*Pass, *[32]byte) {},
	} {
		_, key := newKey(t)
		p, requests := NewPass(), []Request{{Key: key, Message: []byte("m")}}
		p.nonces(requests)
		r := &requests[0]
		encoding := [32]byte(r.Signature[:32])
		spoil(p, &encoding)
		k := hash(encoding[:], key.public[:], r.Message)
		s := product(&k, &key.a)
		s = sum(&s, &p.r[0])
		copy(r.Signature[:], encoding[:])
		s.put(r.Signature[32:])
		if p.check(requests); r.Right != (name == "none") {
			t.Errorf("%s: right %v", name, r.Right)
		}
	}
}
