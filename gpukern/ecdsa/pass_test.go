package ecdsa

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	_ "crypto/sha1"
	_ "crypto/sha256"
	_ "crypto/sha3"
	"crypto/sha512"
	"encoding/asn1"
	"fmt"
	"math/big"
	"os"
	"strconv"
	"testing"
)

// testKey is a key in both forms.
type testKey struct {
	std *ecdsa.PrivateKey
	key *Key
}

func keyOf(t testing.TB, c *Curve, std *ecdsa.PrivateKey) testKey {
	t.Helper()
	d, err := std.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	q, err := std.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	k, err := NewKey(c, d, q)
	if err != nil {
		t.Fatal(err)
	}
	return testKey{std, k}
}

func randomKey(t testing.TB, c *Curve) testKey {
	t.Helper()
	std, err := ecdsa.GenerateKey(standard(c), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return keyOf(t, c, std)
}

func standard(c *Curve) elliptic.Curve {
	if c.size == 32 {
		return elliptic.P256()
	}
	return elliptic.P384()
}

// scalarKey returns the key of a number.
func scalarKey(t testing.TB, c *Curve, d *big.Int) testKey {
	t.Helper()
	std, err := ecdsa.ParseRawPrivateKey(standard(c), d.FillBytes(make([]byte, c.size)))
	if err != nil {
		t.Fatal(err)
	}
	return keyOf(t, c, std)
}

// TestSignaturesVerify has crypto/ecdsa verify signatures of passes of every size, with one key and with many.
func TestSignaturesVerify(t *testing.T) {
	forms(t, func(t *testing.T) {
		for _, curve := range curves {
			c := curve()
			var keys []testKey
			for range Lanes {
				keys = append(keys, randomKey(t, c))
			}
			p := NewPass(c)
			for n := 1; n <= Lanes; n++ {
				for _, differ := range []int{1, n} {
					signAndVerify(t, p, n, func(i int) testKey { return keys[i%differ] })
				}
			}
		}
	})
}

func signAndVerify(t *testing.T, p *Pass, n int, key func(i int) testKey) {
	t.Helper()
	digests := make([][]byte, n)
	for i := range n {
		digests[i] = make([]byte, sha512.Size)
		rand.Read(digests[i])
		nonce := make([]byte, 2*p.c.size)
		rand.Read(nonce)
		p.Set(key(i).key, digests[i], nonce)
	}
	if !p.Run() {
		t.Fatalf("%d signatures of %d: the pass refuses them", n, p.c.params.BitSize)
	}
	for i := range n {
		r, s := p.Signature(i)
		if !ecdsa.Verify(&key(i).std.PublicKey, digests[i], new(big.Int).SetBytes(r), new(big.Int).SetBytes(s)) {
			t.Fatalf("signature %d of %d: crypto/ecdsa refuses %x, %x", i, n, r, s)
		}
	}
	p.Clear()
}

// TestManySignatures makes MILLRACE_ECDSA_SIGNATURES of them for either curve, with keys that change.
func TestManySignatures(t *testing.T) {
	if !supported {
		t.Skip("this CPU has no AVX-512 IFMA: TestSignaturesVerify has the plain form")
	}
	n := 800
	if text := os.Getenv("MILLRACE_ECDSA_SIGNATURES"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	for _, curve := range curves {
		c := curve()
		p := NewPass(c)
		var keys [3]testKey
		for done := 0; done < n; done += Lanes {
			if done%(64*Lanes) == 0 {
				for i := range keys {
					keys[i] = randomKey(t, c)
				}
			}
			signAndVerify(t, p, Lanes, func(i int) testKey { return keys[(i+done)%len(keys)] })
		}
	}
}

// multipleOfG returns the point of crypto/ecdsa's public key for a number from 1 to n-1.
func multipleOfG(t *testing.T, c *Curve, k *big.Int) (x, y *big.Int) {
	t.Helper()
	key, err := ecdsa.ParseRawPrivateKey(standard(c), k.FillBytes(make([]byte, c.size)))
	if err != nil {
		t.Fatal(err)
	}
	point, err := key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return new(big.Int).SetBytes(point[1 : 1+c.size]), new(big.Int).SetBytes(point[1+c.size:])
}

// reference returns a signature by the formulas of FIPS 186-5 6.4.1 in math/big.
func reference(t *testing.T, c *Curve, d *big.Int, digest []byte, k *big.Int) (r, s *big.Int) {
	t.Helper()
	n := c.params.N
	x, _ := multipleOfG(t, c, k)
	r = x.Mod(x, n)
	s = new(big.Int).Mul(r, d)
	s.Add(s, new(big.Int).SetBytes(digest[:min(len(digest), c.size)]))
	s.Mul(s, new(big.Int).ModInverse(k, n))
	return r, s.Mod(s, n)
}

// edges returns numbers from 1 to n-1 at the ends, at powers of two, and at the borders of digits and windows.
func edges(n *big.Int) []*big.Int {
	var all []*big.Int
	add := func(x *big.Int) {
		if x.Sign() > 0 && x.Cmp(n) < 0 {
			all = append(all, x)
		}
	}
	one := big.NewInt(1)
	for i := range int64(5) {
		add(big.NewInt(i))
		add(new(big.Int).Sub(n, big.NewInt(i)))
		add(new(big.Int).Add(new(big.Int).Rsh(n, 1), big.NewInt(i-2)))
	}
	for _, bit := range []uint{6, 52, 104, 192, 208, 224, 250, 252, 255, 256, 364, 378, 383} {
		for i := int64(-1); i <= 1; i++ {
			add(new(big.Int).Add(new(big.Int).Lsh(one, bit), big.NewInt(i)))
		}
		add(new(big.Int).Sub(n, new(big.Int).Lsh(one, bit)))
	}
	return all
}

// TestEdges has every edge as a nonce, as a digest and as a key, compared with math/big.
func TestEdges(t *testing.T) {
	forms(t, func(t *testing.T) {
		for _, curve := range curves {
			c := curve()
			n := c.params.N
			numbers := edges(n)
			digests := [][]byte{nil, bytes.Repeat([]byte{0xff}, 64), n.Bytes(), c.params.P.Bytes()}
			for _, x := range numbers {
				digests = append(digests, x.FillBytes(make([]byte, c.size)))
			}
			p := NewPass(c)
			step := Lanes
			if !supported {
				step *= 5 // the tables of keys take their time
			}
			for i := 0; i < len(numbers); i += step {
				some := numbers[i:min(i+Lanes, len(numbers))]
				var keys []*big.Int
				for j, k := range some {
					d := numbers[(7*i+3*j+5)%len(numbers)]
					keys = append(keys, d)
					p.Set(scalarKey(t, c, d).key, digests[(i+j)%len(digests)], k.FillBytes(make([]byte, 2*c.size)))
				}
				if !p.Run() {
					t.Fatalf("P-%d: the pass of nonces %x by keys %x refuses its signatures", c.params.BitSize, some, keys)
				}
				for j, k := range some {
					r, s := reference(t, c, keys[j], digests[(i+j)%len(digests)], k)
					checkSignature(t, p, j, r, s)
				}
				p.Clear()
			}
		}
	})
}

func checkSignature(t *testing.T, p *Pass, i int, r, s *big.Int) {
	t.Helper()
	gotR, gotS := p.Signature(i)
	if new(big.Int).SetBytes(gotR).Cmp(r) != 0 || new(big.Int).SetBytes(gotS).Cmp(s) != 0 {
		t.Fatalf("signature %d of P-%d: %x, %x, want %x, %x", i, p.c.params.BitSize, gotR, gotS, r, s)
	}
}

// TestNoncesAreReduced: a nonce of twice the length counts modulo n, and one that is a multiple of n is no nonce.
func TestNoncesAreReduced(t *testing.T) {
	forms(t, func(t *testing.T) {
		for _, curve := range curves {
			c := curve()
			key := randomKey(t, c)
			d, _ := key.std.Bytes()
			p := NewPass(c)
			digest := make([]byte, 32)
			rand.Read(digest)
			var nonces [Lanes][]byte
			for i := range nonces {
				nonces[i] = bytes.Repeat([]byte{0xff}, 2*c.size)
				if i > 0 {
					rand.Read(nonces[i])
				}
				p.Set(key.key, digest, nonces[i])
			}
			if !p.Run() {
				t.Fatal("refused")
			}
			for i, nonce := range nonces {
				k := new(big.Int).SetBytes(nonce)
				r, s := reference(t, c, new(big.Int).SetBytes(d), digest, k.Mod(k, c.params.N))
				checkSignature(t, p, i, r, s)
			}
			p.Clear()
			p.Set(key.key, digest, new(big.Int).Mul(c.params.N, big.NewInt(5)).FillBytes(make([]byte, 2*c.size)))
			if p.Run() {
				t.Error("a nonce of 0 has a signature")
			}
			p.Clear()
		}
	})
}

// TestTheOneExceptionalNonce is where the last addition has the same point twice: no signature leaves.
func TestTheOneExceptionalNonce(t *testing.T) {
	forms(t, func(t *testing.T) {
		for _, curve := range curves {
			c := curve()
			top := uint(6*(c.generator.windows-1) + 1)
			most := int64(15) // the largest last digit
			if c.size == 48 {
				most = 63
			}
			k := new(big.Int).Lsh(big.NewInt(most), top)
			k.Sub(k, c.params.N)
			p := NewPass(c)
			key := randomKey(t, c).key
			p.Set(key, []byte{1}, k.FillBytes(make([]byte, 2*c.size)))
			p.reduceNonces()
			p.multiplyGenerator()
			if z := laneNumber(p.sum.z, 0); z.Mod(z, c.params.P).Sign() != 0 {
				t.Errorf("P-%d: z is %x", c.params.BitSize, z)
			}
			if p.Run() {
				t.Error("the pass accepts it")
			}
		}
	})
}

// TestRFC6979 has the nonces and signatures of RFC 6979 A.2.5 and A.2.6.
func TestRFC6979(t *testing.T) {
	forms(t, func(t *testing.T) {
		for _, v := range rfc6979 {
			c := v.curve()
			d := hexNumber(t, v.d)
			key := scalarKey(t, c, d)
			h := v.hash.New()
			h.Write([]byte(v.message))
			digest := h.Sum(nil)
			p := NewPass(c)
			p.Set(key.key, digest, hexNumber(t, v.k).FillBytes(make([]byte, 2*c.size)))
			if !p.Run() {
				t.Fatal("refused")
			}
			checkSignature(t, p, 0, hexNumber(t, v.r), hexNumber(t, v.s))
		}
	})
}

// TestDeterministicSignatures takes the nonces out of crypto/ecdsa's deterministic signatures, for every hash.
func TestDeterministicSignatures(t *testing.T) {
	for _, curve := range curves {
		c := curve()
		key := randomKey(t, c)
		private, _ := key.std.Bytes()
		d := new(big.Int).SetBytes(private)
		p := NewPass(c)
		for i, hash := range []crypto.Hash{crypto.SHA1, crypto.SHA224, crypto.SHA256, crypto.SHA384, crypto.SHA512, crypto.SHA3_256} {
			h := hash.New()
			fmt.Fprint(h, i)
			digest := h.Sum(nil)
			signature, err := key.std.Sign(nil, digest, hash)
			if err != nil {
				t.Fatal(err)
			}
			var want struct{ R, S *big.Int }
			if _, err := asn1.Unmarshal(signature, &want); err != nil {
				t.Fatal(err)
			}
			k := new(big.Int).Mul(want.R, d)
			k.Add(k, new(big.Int).SetBytes(digest[:min(len(digest), c.size)]))
			k.Mul(k, new(big.Int).ModInverse(want.S, c.params.N))
			p.Set(key.key, digest, k.Mod(k, c.params.N).FillBytes(make([]byte, 2*c.size)))
			if !p.Run() {
				t.Fatal("refused")
			}
			checkSignature(t, p, 0, want.R, want.S)
			p.Clear()
		}
	}
}

func hexNumber(t *testing.T, text string) *big.Int {
	t.Helper()
	n, ok := new(big.Int).SetString(text, 16)
	if !ok {
		t.Fatalf("%q is no number", text)
	}
	return n
}

var rfc6979 = []struct {
	curve      func() *Curve
	d, message string
	hash       crypto.Hash
	k, r, s    string
}{
	{
		P256, "C9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721", "sample", crypto.SHA256,
		"A6E3C57DD01ABE90086538398355DD4C3B17AA873382B0F24D6129493D8AAD60",
		"EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716",
		"F7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8",
	},
	{
		P256, "C9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721", "test", crypto.SHA256,
		"D16B6AE827F17175E040871A1C7EC3500192C4C92677336EC2537ACAEE0008E0",
		"F1ABB023518351CD71D881567B1EA663ED3EFCF6C5132B354F28D3B0B7D38367",
		"019F4113742A2B14BD25926B49C649155F267E60D3814B4C0CC84250E46F0083",
	},
	{
		P384, "6B9D3DAD2E1B8C1C05B19875B6659F4DE23C3B667BF297BA9AA47740787137D896D5724E4C70A825F872C9EA60D2EDF5", "sample", crypto.SHA384,
		"94ED910D1A099DAD3254E9242AE85ABDE4BA15168EAF0CA87A555FD56D10FBCA2907E3E83BA95368623B8C4686915CF9",
		"94EDBB92A5ECB8AAD4736E56C691916B3F88140666CE9FA73D64C4EA95AD133C81A648152E44ACF96E36DD1E80FABE46",
		"99EF4AEB15F178CEA1FE40DB2603138F130E740A19624526203B6351D0A3A94FA329C145786E679E7B82C71A38628AC8",
	},
}

func TestKeysThatAreRefused(t *testing.T) {
	c := P256()
	for _, sizes := range [][2]int{{31, 65}, {33, 65}, {32, 64}, {32, 66}, {32, 0}} {
		public := make([]byte, sizes[1])
		if len(public) > 0 {
			public[0] = 4
		}
		if _, err := NewKey(c, make([]byte, sizes[0]), public); err == nil {
			t.Errorf("%v: accepted", sizes)
		}
	}
	compressed := make([]byte, 65)
	compressed[0] = 3
	if _, err := NewKey(c, make([]byte, 32), compressed); err == nil {
		t.Error("a compressed point is accepted")
	}
}

// TestClear has no secret left in the memory of a pass, or of a key.
func TestClear(t *testing.T) {
	c := P256()
	key := randomKey(t, c)
	p := NewPass(c)
	p.Set(key.key, []byte{1}, bytes.Repeat([]byte{3}, 64))
	p.Run()
	p.Clear()
	for i := range p.rows {
		if p.rows[i] != (row{}) {
			t.Fatalf("row %d is %x", i, p.rows[i])
		}
	}
	if p.n != 0 || p.keys[0] != nil {
		t.Error("a key is still set")
	}
	key.key.Clear()
	for _, d := range key.key.d {
		if d != 0 {
			t.Error("the private key is still there")
		}
	}
}

// TestTablesAreMultiples compares entries of the tables with crypto/ecdsa.
func TestTablesAreMultiples(t *testing.T) {
	forms(t, func(t *testing.T) {
		for _, c := range []*Curve{newCurve(elliptic.P256().Params(), 5, p256), newCurve(elliptic.P384().Params(), 8, p384)} {
			f := c.p
			inverseR := new(big.Int).Lsh(big.NewInt(1), uint(f.digits*digitBits))
			inverseR.ModInverse(inverseR, f.prime)
			tables := []*table{c.generator, c.newTable(c.params.Gx, c.params.Gy, keyBits)}
			for _, table := range tables {
				for w := range table.windows {
					for e := range table.entries() {
						if e > 1 && e < table.entries()-1 && (w+e)%7 != 0 {
							continue
						}
						k := new(big.Int).Lsh(big.NewInt(int64(2*e+1)), uint(table.bits*w))
						wantX, wantY := multipleOfG(t, c, k.Mod(k, c.params.N))
						x, y := table.point(f, w, e)
						x.Mod(x.Mul(x, inverseR), f.prime)
						y.Mod(y.Mul(y, inverseR), f.prime)
						if x.Cmp(wantX) != 0 || y.Cmp(wantY) != 0 {
							t.Fatalf("P-%d, windows of %d bits: entry %d of window %d is wrong", c.params.BitSize, table.bits, e, w)
						}
					}
				}
			}
		}
	})
}
