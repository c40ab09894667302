package aead

import (
	"bytes"
	"crypto/fips140"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
)

// TestCipher compares New's AEAD with the standard library, in place and appended to other bytes.
func TestCipher(t *testing.T) {
	for _, a := range []Algorithm{AES128GCM, AES256GCM, ChaCha20Poly1305} {
		m := &maker{Rand: rand.New(rand.NewPCG(1, uint64(a)))}
		key := m.bytes(a.KeySize())
		c, err := New(a, key)
		if err != nil || c.NonceSize() != 12 || c.Overhead() != TagSize {
			t.Fatal(a, err)
		}
		for size := 0; size < 700; size++ {
			nonce, text, aad := m.bytes(12), m.bytes(size), m.bytes(m.IntN(30))
			want := reference(t, a, key, nonce, aad, text)
			for _, before := range [][]byte{nil, m.bytes(9), append(make([]byte, 0, 2000), 1, 2)} {
				got := c.Seal(before, nonce, text, aad)
				if !bytes.Equal(got, append(bytes.Clone(before), want...)) {
					t.Fatalf("%v, %d bytes: %x, want %x", a, size, got, want)
				}
				got, err := c.Open(before, nonce, want, aad)
				if err != nil || !bytes.Equal(got, append(bytes.Clone(before), text...)) {
					t.Fatalf("%v, %d bytes: %x, %v, want %x", a, size, got, err, text)
				}
			}
			frame := append(make([]byte, 0, size+TagSize), text...)
			frame = c.Seal(frame[:0], nonce, frame, aad)
			if !bytes.Equal(frame, want) {
				t.Fatalf("%v, %d bytes in place: %x, want %x", a, size, frame, want)
			}
			frame = append(frame[:0], want...)
			frame[m.IntN(len(frame))] ^= 1
			tag := bytes.Clone(frame[size:])
			if got, err := c.Open(frame[:0], nonce, frame, aad); got != nil || err == nil {
				t.Fatalf("%v, %d bytes: a forged text is opened: %x", a, size, got)
			}
			if !bytes.Equal(frame, append(make([]byte, size), tag...)) {
				t.Fatalf("%v, %d bytes: a forged text leaves %x", a, size, frame)
			}
		}
		frame, nonce := make([]byte, 100, 200), make([]byte, 12)
		_, own := c.(*gcm)
		if n := testing.AllocsPerRun(100, func() { c.Seal(frame[:0], nonce, frame, nil) }); own && n != 0 {
			t.Errorf("%v: %v allocations", a, n)
		}
		for size := range TagSize {
			if _, err := c.Open(nil, make([]byte, 12), make([]byte, size), nil); err == nil {
				t.Errorf("%v: %d bytes are opened", a, size)
			}
		}
	}
	if _, err := New(AES128CBCSHA256, make([]byte, 48)); err != ErrAlgorithm {
		t.Error(err)
	}
	if _, err := New(AES128GCM, make([]byte, 15)); err != ErrKeySize {
		t.Error(err)
	}
}

// TestCipherArguments: what crypto/cipher panics for.
func TestCipherArguments(t *testing.T) {
	c, err := New(AES128GCM, make([]byte, 16))
	if err != nil {
		t.Fatal(err)
	}
	p, nonce := make([]byte, 200), make([]byte, 12)
	for name, f := range map[string]func(){
		"nonce":               func() { c.Seal(nil, nonce[:11], nil, nil) },
		"nonce, open":         func() { _, _ = c.Open(nil, make([]byte, 13), p, nil) },
		"nonce, nothing":      func() { _, _ = c.Open(nil, nil, nil, nil) },
		"text behind":         func() { c.Seal(p[:1], nonce, p[:50], nil) },
		"text before":         func() { c.Seal(p[:0], nonce, p[1:50], nil) },
		"associated data":     func() { c.Seal(p[:0], nonce, p[:50], p[60:]) },
		"sealed behind":       func() { _, _ = c.Open(p[:1], nonce, p[:50], nil) },
		"associated and open": func() { _, _ = c.Open(p[:0], nonce, p[:50], p[20:30]) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
	c.Seal(p[:0], nonce, p[:50], p[66:]) // side by side
}

// TestFIPS runs in a child, as the mode is set when a process starts: all forms are those of crypto/*, and what is excluded
// has errors.
func TestFIPS(t *testing.T) {
	mode := os.Getenv("MILLRACE_FIPS_CHILD")
	if mode == "" {
		for _, mode := range []string{"on", "only"} {
			cmd := exec.Command(os.Args[0], "-test.run=^TestFIPS$")
			cmd.Env = append(os.Environ(), "GODEBUG=fips140="+mode, "MILLRACE_FIPS_CHILD="+mode)
			out, err := cmd.CombinedOutput()
			if bytes.Contains(out, []byte("incompatible with the purego build tag")) {
				t.Skip("built with the tag purego, which excludes FIPS mode")
			}
			if err != nil {
				t.Errorf("%s: %v\n%s", mode, err, out)
			}
		}
		return
	}
	if !fips140.Enabled() {
		t.Fatal("the mode is not set")
	}
	if _, err := NewForm(FormAVX512); err != ErrForm {
		t.Error("a form of the package's own is used")
	}
	for _, a := range everyAlgorithm {
		_, err := NewKey(a, make([]byte, a.KeySize()))
		if excluded := mode == "only" && !a.cbc(); (err != nil) != excluded {
			t.Errorf("%v: %v", a, err)
		}
	}
}
