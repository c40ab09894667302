package sign

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	_ "crypto/sha1"
	"crypto/sha256"
	_ "crypto/sha512"
	"errors"
	"fmt"
	"io"
	"math/big"
	"reflect"
	"sync"
	"testing"
)

// keyOf returns a key of so many bits, made once.
func keyOf(t testing.TB, bits int) *rsa.PrivateKey {
	t.Helper()
	make, _ := keys.LoadOrStore(bits, sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, bits) }))
	k, err := make.(func() (*rsa.PrivateKey, error))()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

var keys sync.Map

func batchKey(t testing.TB, bits int) *RSAKey {
	t.Helper()
	k, err := NewRSAKey(keyOf(t, bits))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

var hashes = []crypto.Hash{crypto.SHA1, crypto.SHA256, crypto.SHA384, crypto.SHA512}

// request returns one of the many kinds of requests.
func request(k *RSAKey, i int) *Request {
	h := hashes[i%len(hashes)]
	d := h.New()
	fmt.Fprint(d, i)
	r := &Request{Key: k, Random: rand.Reader, Digest: d.Sum(nil), Opts: h}
	switch i / len(hashes) % 4 {
	case 1:
		r.Opts = &rsa.PSSOptions{Hash: h, SaltLength: rsa.PSSSaltLengthEqualsHash}
	case 2:
		r.Opts = &rsa.PSSOptions{Hash: h, SaltLength: rsa.PSSSaltLengthAuto}
	case 3:
		r.Opts = &rsa.PSSOptions{Hash: h, SaltLength: 7}
	}
	return r
}

// verify has crypto/rsa verify the signature. Without a salt it is the same, byte for byte.
func verify(t *testing.T, key *rsa.PrivateKey, r *Request) {
	t.Helper()
	h := r.Opts.HashFunc()
	if pss, ok := r.Opts.(*rsa.PSSOptions); ok {
		if err := rsa.VerifyPSS(&key.PublicKey, h, r.Digest, r.Signature, &rsa.PSSOptions{SaltLength: pss.SaltLength}); err != nil {
			t.Errorf("%d bits, %v, salt %d: %v", key.N.BitLen(), h, pss.SaltLength, err)
		}
		return
	}
	want, err := rsa.SignPKCS1v15(nil, key, h, r.Digest)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(r.Signature, want) {
		t.Errorf("%d bits, %v: %x, want %x", key.N.BitLen(), h, r.Signature, want)
	}
}

// TestSignaturesAreThoseOfCryptoRSA has keys on either side of the borders of digits and blocks, of many lengths in one batch.
func TestSignaturesAreThoseOfCryptoRSA(t *testing.T) {
	lengths := []int{2048, 2050, 2056, 2072, 2074, 2400, 3072, 4096}
	if !Supported() {
		lengths = lengths[:2]
	}
	var b Batch
	var all []*Request
	var by []*rsa.PrivateKey
	for i := range 17 * len(lengths) {
		bits := lengths[i%len(lengths)]
		r := request(batchKey(t, bits), i/len(lengths))
		b.Add(r)
		all, by = append(all, r), append(by, keyOf(t, bits))
	}
	b.Run()
	for i, r := range all {
		if r.Err != nil || !r.Ended() {
			t.Fatalf("%d bits: ended %v, %v", by[i].N.BitLen(), r.Ended(), r.Err)
		}
		verify(t, by[i], r)
	}
	if s := b.Stats(); s.Signatures != uint64(len(all)) || s.Faults != 0 {
		t.Errorf("%+v", s)
	}
}

// TestFourSharePasses: requests of keys of one shape are signed four at once, others apart.
func TestFourSharePasses(t *testing.T) {
	for _, c := range []struct {
		lengths []int
		passes  uint64
	}{
		{[]int{2048}, 1},
		{[]int{2048, 2048, 2048, 2048}, 1},
		{[]int{2048, 2048, 2048, 2048, 2048}, 2},
		{[]int{2048, 2050, 2048, 2050}, 1},
		{[]int{2048, 3072, 2048, 3072}, 2},
	} {
		var b Batch
		for i, bits := range c.lengths {
			b.Add(request(batchKey(t, bits), i))
		}
		b.Run()
		if s := b.Stats(); s.Passes != c.passes || s.Signatures != uint64(len(c.lengths)) {
			t.Errorf("%v: %+v, want %d passes", c.lengths, s, c.passes)
		}
		if b.Waiting() != 0 {
			t.Errorf("%d wait after Run", b.Waiting())
		}
	}
}

// TestAFaultDisclosesNothing: a wrong result modulo one prime, which would disclose the key, is no signature.
func TestAFaultDisclosesNothing(t *testing.T) {
	key := keyOf(t, 2048)
	for name, spoil := range map[string]func(*RSAKey){
		"exponent modulo p": func(k *RSAKey) { k.dp[len(k.dp)-1] ^= 4 },
		"exponent modulo q": func(k *RSAKey) { k.dq[0] ^= 1 },
		"coefficient":       func(k *RSAKey) { k.qInverse[3] ^= 1 },
		"prime":             func(k *RSAKey) { k.qDigits[0] ^= 2 },
	} {
		k := batchKey(t, 2048)
		spoil(k)
		whole := batchKey(t, 2048)
		var b Batch
		wrong, right := request(k, 1), request(whole, 1)
		b.Add(wrong)
		b.Add(right)
		b.Run()
		if wrong.Err != ErrFault || wrong.Signature != nil {
			t.Errorf("%s: %v, %x", name, wrong.Err, wrong.Signature)
		}
		verify(t, key, right) // beside it
		if s := b.Stats(); s.Faults != 1 || s.Signatures != 1 {
			t.Errorf("%s: %+v", name, s)
		}
		s := NewSigner(key)
		s.batch, s.state = k, prepared
		signature, err := s.Sign(rand.Reader, wrong.Digest, wrong.Opts)
		if err != nil || s.Faults() != 1 {
			t.Fatalf("%s: %v, %d faults", name, err, s.Faults())
		}
		verify(t, key, &Request{Opts: wrong.Opts, Digest: wrong.Digest, Signature: signature})
	}
}

// failing fails to be read.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrNoProgress }

func TestRequestsThatFail(t *testing.T) {
	k := batchKey(t, 2048)
	digest := make([]byte, 32)
	pss := func(salt int) crypto.SignerOpts { return &rsa.PSSOptions{Hash: crypto.SHA256, SaltLength: salt} }
	var b Batch
	for name, r := range map[string]*Request{
		"short digest":    {Digest: digest[:31], Opts: crypto.SHA256},
		"long digest":     {Digest: digest, Opts: crypto.SHA1},
		"unknown hash":    {Digest: digest, Opts: crypto.SHA3_256},
		"no hash":         {Digest: digest, Opts: crypto.Hash(0)},
		"negative salt":   {Digest: digest, Opts: pss(-7)},
		"salt too long":   {Digest: digest, Opts: pss(256 - 32 - 1)},
		"no random":       {Digest: digest, Opts: pss(32), Random: failing{}},
		"unknown and PSS": {Digest: digest, Opts: &rsa.PSSOptions{Hash: crypto.SHA3_256, SaltLength: 32}},
	} {
		ended := 0
		r.Key, r.Done = k, func() { ended++ }
		if r.Random == nil {
			r.Random = rand.Reader
		}
		good := request(k, 3)
		b.Add(r)
		b.Add(good)
		b.Run()
		if r.Err == nil || r.Err == ErrFault || r.Signature != nil || ended != 1 {
			t.Errorf("%s: %v, ended %d times", name, r.Err, ended)
		}
		verify(t, keyOf(t, 2048), good)
	}
	longest := &Request{Key: k, Random: rand.Reader, Digest: digest, Opts: pss(256 - 32 - 2)}
	b.Add(longest)
	b.Run()
	if longest.Err != nil {
		t.Error("the longest salt: ", longest.Err)
	}
	verify(t, keyOf(t, 2048), longest)
}

func TestKeysThatAreRefused(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	three := *keyOf(t, 2048)
	three.Primes = append(three.Primes[:2:2], big.NewInt(3))
	exponent := *keyOf(t, 2048)
	exponent.E = 1
	for name, key := range map[string]*rsa.PrivateKey{"1024 bits": small, "primes of two lengths": keyOf(t, 2049), "three primes": &three, "exponent 1": &exponent} {
		if _, err := NewRSAKey(key); !errors.Is(err, ErrUnsuited) {
			t.Errorf("%s: %v", name, err)
		}
	}
	wrong := *keyOf(t, 2048)
	wrong.D = new(big.Int).Add(wrong.D, big.NewInt(2))
	if _, err := NewRSAKey(&wrong); err == nil {
		t.Error("a private exponent that is not the key's")
	}
	// A Signer falls back.
	d := sha256.Sum256(nil)
	s := NewSigner(&three)
	if s.Request(rand.Reader, d[:], crypto.SHA256) != nil {
		t.Error("a request with three primes")
	}
}

func TestSigner(t *testing.T) {
	key := keyOf(t, 2048)
	s := NewRSASigner(key)
	if !key.PublicKey.Equal(s.Public()) || s.Key() != key {
		t.Error("another key")
	}
	d := sha256.Sum256([]byte("signer"))
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range 3 {
				signature, err := s.Sign(rand.Reader, d[:], crypto.SHA256)
				if err != nil {
					t.Error(err)
				}
				if err := rsa.VerifyPKCS1v15(&key.PublicKey, crypto.SHA256, d[:], signature); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	// What no batch encodes is signed by crypto/rsa.
	both := make([]byte, crypto.MD5SHA1.Size())
	signature, err := s.Sign(rand.Reader, both, crypto.MD5SHA1)
	if err != nil || rsa.VerifyPKCS1v15(&key.PublicKey, crypto.MD5SHA1, both, signature) != nil {
		t.Errorf("MD5SHA1: %v", err)
	}
	//lint:ignore SA1019 it is what TLS 1.2 has in its exchange of keys by RSA
	secret, err := rsa.EncryptPKCS1v15(rand.Reader, &key.PublicKey, []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := s.Decrypt(rand.Reader, secret, nil); err != nil || string(plain) != "secret" {
		t.Errorf("decrypts to %q, %v", plain, err)
	}
}

func TestWrap(t *testing.T) {
	other := struct{}{}
	if Wrap(other) != other {
		t.Error("another kind of key is wrapped")
	}
	if _, ok := Wrap(keyOf(t, 2048)).(RSASigner); ok != Supported() {
		t.Errorf("wrapped %v, supported %v", ok, Supported())
	}
	for name, taken := range map[string]bool{"P-224": false, "P-256": true, "P-384": true, "P-521": false} {
		key := curveKey(t, name)
		wrapped := Wrap(key)
		if _, ok := wrapped.(*Signer); ok != (taken && Supported()) {
			t.Errorf("%s: wrapped %v, supported %v", name, ok, Supported())
		}
		if _, ok := wrapped.(crypto.Decrypter); ok {
			t.Errorf("%s: it decrypts: crypto/tls would refuse it", name)
		}
		if s := Of(wrapped); s != nil && s.Key() != key {
			t.Errorf("%s: another key", name)
		}
	}
	if Of(keyOf(t, 2048)) != nil || Of(NewRSASigner(keyOf(t, 2048))) == nil {
		t.Error("Of finds another Signer")
	}
}

// TestCancel: a request that is withdrawn before Run, or by the Done of one that is signed with it, has no Done.
func TestCancel(t *testing.T) {
	k := batchKey(t, 2048)
	var b Batch
	before, first, second := request(k, 0), request(k, 1), request(k, 2)
	before.Done = func() { t.Error("withdrawn before Run") }
	second.Done = func() { t.Error("withdrawn by another one") }
	first.Done = func() {
		second.Cancel()
		third := request(k, 3)
		b.Add(third)
	}
	b.Add(before)
	b.Add(first)
	b.Add(second)
	before.Cancel()
	b.Run()
	if before.Ended() || !first.Ended() || second.Ended() {
		t.Errorf("ended: %v, %v, %v", before.Ended(), first.Ended(), second.Ended())
	}
	if b.Waiting() != 1 {
		t.Errorf("%d wait, want the one that Done has added", b.Waiting())
	}
	b.Run()
	first.Cancel() // too late, and harmless
	if s := b.Stats(); s.Passes != 2 || s.Signatures != 3 || !first.Ended() {
		t.Errorf("%+v", s)
	}
}

// TestNoSecretStaysInABatch reads the memory of the passes after a run.
func TestNoSecretStaysInABatch(t *testing.T) {
	var b Batch
	b.Add(request(batchKey(t, 2048), 1))
	b.Run()
	for blocks, p := range b.powers {
		rows := reflect.ValueOf(p).Elem().FieldByName("rows")
		for i := range rows.Len() {
			if !rows.Index(i).IsZero() {
				t.Fatalf("row %d of the pass of %d blocks is not zero", i, blocks)
			}
		}
	}
}

func TestClear(t *testing.T) {
	k := batchKey(t, 2048)
	k.Clear()
	for name, p := range map[string][]byte{"dp": k.dp, "dq": k.dq} {
		if !bytes.Equal(p, make([]byte, len(p))) {
			t.Errorf("%s is still there", name)
		}
	}
	for _, d := range [][]uint64{k.qInverse, k.qDigits} {
		for _, v := range d {
			if v != 0 {
				t.Fatal("digits are still there")
			}
		}
	}
}

// BenchmarkSign makes n signatures at once; those of crypto/rsa one after the other.
func BenchmarkSign(b *testing.B) {
	opts := &rsa.PSSOptions{Hash: crypto.SHA256, SaltLength: rsa.PSSSaltLengthEqualsHash}
	d := sha256.Sum256(nil)
	for _, bits := range []int{2048, 3072, 4096} {
		k := batchKey(b, bits)
		for _, n := range []int{1, 4, 8} {
			b.Run(fmt.Sprintf("RSA-%d/%d at once", bits, n), func(b *testing.B) {
				var batch Batch
				for b.Loop() {
					for range n {
						batch.Add(&Request{Key: k, Random: rand.Reader, Digest: d[:], Opts: opts})
					}
					batch.Run()
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "us/signature")
			})
		}
		b.Run(fmt.Sprintf("RSA-%d/crypto", bits), func(b *testing.B) {
			for b.Loop() {
				if _, err := rsa.SignPSS(rand.Reader, keyOf(b, bits), crypto.SHA256, d[:], opts); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N), "us/signature")
		})
	}
}
