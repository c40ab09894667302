package x25519

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/hex"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/gpukern/field25519"
	"github.com/millrace/millrace/internal/testkit/consttime"
)

// forms runs a test by the ways of computing that this machine has.
func forms(t *testing.T, test func(t *testing.T)) {
	best := form
	defer func() { form = best }()
	for _, form = range field25519.Forms() {
		t.Run(form.Name(), test)
	}
}

func from(t *testing.T, text string) (b [Size]byte) {
	t.Helper()
	if n, err := hex.Decode(b[:], []byte(text)); err != nil || n != Size {
		t.Fatalf("%q: %v", text, err)
	}
	return b
}

// product multiplies in one lane, beside others.
func product(p *Pass, lane int, scalar, point [Size]byte) [Size]byte {
	n := p.Lanes()
	scalars, points, products := make([][Size]byte, n), make([][Size]byte, n), make([][Size]byte, n)
	for i := range n {
		scalars[i][3], points[i] = byte(i), Base
	}
	scalars[lane%n], points[lane%n] = scalar, point
	p.Multiply(products, scalars, points)
	return products[lane%n]
}

// TestRFC7748 has the vectors of RFC 7748 5.2: MILLRACE_X25519_MILLION asks for all iterations.
func TestRFC7748(t *testing.T) {
	forms(t, func(t *testing.T) {
		p := NewPass()
		for i, v := range [][3]string{
			{
				"a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
				"e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
				"c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
			},
			{
				"4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
				"e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
				"95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
			},
		} {
			if got := product(p, i%Lanes, from(t, v[0]), from(t, v[1])); got != from(t, v[2]) {
				t.Errorf("vector %d: %x, want %s", i, got, v[2])
			}
		}
		iterations, want := 1, "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"
		if form.Vector() {
			iterations, want = 1000, "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51"
		}
		if form.Vector() && os.Getenv("MILLRACE_X25519_MILLION") != "" {
			iterations, want = 1000000, "7c3911e0ab2586fd864497297e575e6f3bc601c0883c30df5f4dd2d24f665424"
		}
		k, u := Base, Base
		for i := range iterations {
			k, u = product(p, i%Lanes, k, u), k
		}
		if k != from(t, want) {
			t.Errorf("after %d iterations: %x, want %s", iterations, k, want)
		}
	})
}

// standard returns the product by crypto/ecdh. It refuses those that are zero.
func standard(t *testing.T, scalar, point [Size]byte) (shared [Size]byte) {
	t.Helper()
	private, err := ecdh.X25519().NewPrivateKey(scalar[:])
	if err != nil {
		t.Fatal(err)
	}
	public, err := ecdh.X25519().NewPublicKey(point[:])
	if err != nil {
		t.Fatal(err)
	}
	got, err := private.ECDH(public)
	if err != nil {
		return shared
	}
	return [Size]byte(got)
}

// edgePoints are of low order, not reduced, and with the topmost bit (RFC 7748 5 and 6.1; https://cr.yp.to/ecdh.html#validate).
func edgePoints(t *testing.T) (points [][Size]byte) {
	t.Helper()
	for _, text := range []string{
		"0000000000000000000000000000000000000000000000000000000000000000",
		"0100000000000000000000000000000000000000000000000000000000000000",
		"e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
		"5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"efffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	} {
		p := from(t, text)
		points = append(points, p)
		p[31] |= 128
		points = append(points, p)
	}
	return points
}

// TestProductsAreThoseOfECDH has crypto/ecdh multiply the same scalars and points, random and at the edges.
func TestProductsAreThoseOfECDH(t *testing.T) {
	forms(t, func(t *testing.T) {
		edges := edgePoints(t)
		rounds := 64
		if !form.Vector() {
			rounds = 6
		}
		p := NewPass()
		zero := 0
		for round := range rounds {
			n := 1 + round%p.Lanes()
			products, scalars, points := make([][Size]byte, n), make([][Size]byte, n), make([][Size]byte, n)
			for i := range n {
				rand.Read(scalars[i][:])
				rand.Read(points[i][:])
				switch (round + i) % 4 {
				case 0:
					points[i] = edges[(round*Lanes+i)%len(edges)]
				case 1:
					scalars[i] = [Size]byte(bytes.Repeat([]byte{byte(255 * (round % 2))}, Size))
				}
			}
			if round%3 == 0 && form.Wide() {
				products, scalars, points = products[:min(n, Few)], scalars[:min(n, Few)], points[:min(n, Few)]
				p.MultiplyFew(products, scalars, points)
			} else {
				p.Multiply(products, scalars, points)
			}
			for i := range products {
				if want := standard(t, scalars[i], points[i]); products[i] != want {
					t.Fatalf("%x times %x is %x, want %x", scalars[i], points[i], products[i], want)
				}
				if products[i] == [Size]byte{} {
					zero++
				}
			}
		}
		if zero == 0 {
			t.Error("no point of low order")
		}
	})
}

func TestPublicKeys(t *testing.T) {
	var scalars, points, products [Lanes + 1][Size]byte
	for i := range points {
		rand.Read(scalars[i][:])
		points[i] = Base
	}
	MultiplyAll(products[:], scalars[:], points[:])
	for i, k := range scalars {
		private, err := ecdh.X25519().NewPrivateKey(k[:])
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(private.PublicKey().Bytes(), products[i][:]) {
			t.Errorf("%x, want %x", products[i], private.PublicKey().Bytes())
		}
	}
}

// TestMultiplyClears has no secret left in the memory of a pass.
func TestMultiplyClears(t *testing.T) {
	p := NewPass()
	product(p, 0, Base, Base)
	if form.Wide() {
		var products [Few][Size]byte
		p.MultiplyFew(products[:], [][Size]byte{Base, Base}, [][Size]byte{Base, Base})
	}
	for i := range p.rows {
		if p.rows[i] != (field25519.Row{}) {
			t.Fatalf("row %d is %x", i, p.rows[i])
		}
	}
	if p.scalars != [Lanes][Size]byte{} {
		t.Error("a scalar is still there")
	}
}

func TestMain(m *testing.M) {
	consttime.Subject("product", func(secret int) func() {
		p := NewPass()
		var scalars, points, products [Lanes][Size]byte
		for i := range Lanes {
			for j := range Size {
				scalars[i][j] = [...]byte{0, 255, byte(37*i + 11*j)}[secret]
			}
			points[i] = Base
		}
		n := p.Lanes()
		return func() { p.Multiply(products[:n], scalars[:n], points[:n]) }
	})
	consttime.Subject("few", func(secret int) func() {
		p := NewPass()
		var scalars, products [Few][Size]byte
		points := [Few][Size]byte{Base, Base}
		for i := range Few {
			for j := range Size {
				scalars[i][j] = [...]byte{0, 255, byte(37*i + 11*j)}[secret]
			}
		}
		return func() { p.MultiplyFew(products[:], scalars[:], points[:]) }
	})
	os.Exit(consttime.Main(m))
}

// straight are the operations of the field, in assembly without a branch, and what only calls them.
var straight = []string{"IFMA", "AVX2", ".(*Pass).step"}

func TestBranchesDependOnNoSecret(t *testing.T) {
	if !form.Vector() {
		t.Skip("this CPU has no lanes")
	}
	secrets := 2
	if os.Getenv(consttime.TimingEnv) != "" {
		secrets = 3
	}
	consttime.Branches(t, "product", secrets, []string{"github.com/millrace/millrace/gpukern/"}, nil, straight)
	if !form.Wide() {
		return
	}
	consttime.Branches(t, "few", secrets, []string{"github.com/millrace/millrace/gpukern/"}, nil, straight)
}

func TestTimeDependsOnNoSecret(t *testing.T) {
	if !form.Vector() {
		t.Skip("this CPU has no lanes")
	}
	p := NewPass()
	var scalars, points, products [Lanes][Size]byte
	consttime.Timing(t, func(class int) {
		for i := range Lanes {
			rand.Read(scalars[i][:])
			for j := range Size {
				scalars[i][j] &= -byte(class)
			}
			points[i] = Base
		}
	}, func() { p.Multiply(products[:p.Lanes()], scalars[:p.Lanes()], points[:p.Lanes()]) })
	if !form.Wide() {
		return
	}
	consttime.Timing(t, func(class int) {
		for i := range Few {
			rand.Read(scalars[i][:])
			for j := range Size {
				scalars[i][j] &= -byte(class)
			}
			points[i] = Base
		}
	}, func() { p.MultiplyFew(products[:Few], scalars[:Few], points[:Few]) })
}

// cpuTime returns the CPU time of the process in ns: other processes may have the CPU meanwhile.
func cpuTime() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return t.Nano()
}

// BenchmarkMultiply makes as many key exchanges at once as there are lanes: a public key and a shared secret each; those of crypto/ecdh
// one by one.
func BenchmarkMultiply(b *testing.B) {
	var scalars, bases, points, products [Lanes][Size]byte
	for i := range Lanes {
		rand.Read(scalars[i][:])
		rand.Read(points[i][:])
		bases[i] = Base
	}
	best := form
	defer func() { form = best }()
	for _, form = range field25519.Forms() {
		if !form.Vector() {
			continue
		}
		b.Run(form.Name(), func(b *testing.B) {
			p := NewPass()
			n := p.Lanes()
			start := cpuTime()
			for b.Loop() {
				p.Multiply(products[:n], scalars[:n], bases[:n])
				p.Multiply(products[:n], scalars[:n], points[:n])
			}
			b.ReportMetric(float64(cpuTime()-start)/1000/float64(n*b.N), "cpu-us/exchange")
		})
	}
	b.Run("crypto", func(b *testing.B) {
		public, err := ecdh.X25519().NewPublicKey(points[0][:])
		if err != nil {
			b.Fatal(err)
		}
		start := cpuTime()
		for b.Loop() {
			private, err := ecdh.X25519().GenerateKey(rand.Reader)
			if err != nil {
				b.Fatal(err)
			}
			private.PublicKey()
			if _, err := private.ECDH(public); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(cpuTime()-start)/1000/float64(b.N), "cpu-us/exchange")
	})
}
