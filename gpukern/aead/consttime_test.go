package aead

import (
	"bytes"
	mathrand "math/rand/v2"
	"os"
	"testing"

	"github.com/millrace/millrace/internal/testkit/consttime"
)

// secretive are the algorithms that have forms of the package's own.
var secretive = []Algorithm{AES128GCM, AES256GCM, ChaCha20Poly1305}

func TestMain(m *testing.M) {
	for _, a := range secretive {
		consttime.Subject(a.String(), func(secret int) func() { return sealing(a, secret) })
	}
	os.Exit(consttime.Main(m))
}

// secretBytes returns n bytes of the secret of that number: zeros, ones, or others.
func secretBytes(n, secret int) []byte {
	p := bytes.Repeat([]byte{byte(-min(secret, 1))}, n)
	if secret > 1 {
		r := mathrand.New(mathrand.NewPCG(uint64(secret), 1))
		for i := range p {
			p[i] = byte(r.Uint32())
		}
	}
	return p
}

// sealing returns what expands a key, seals texts of several lengths and opens them again. Keys and texts are secret.
func sealing(a Algorithm, secret int) func() {
	key := secretBytes(a.KeySize(), secret)
	var texts Batch
	for i, size := range []int{0, 5, 300, 1100} {
		at := uint32(len(texts.Mem))
		texts.Mem = append(texts.Mem, make([]byte, 20)...)
		texts.Mem = append(texts.Mem, secretBytes(size+TagSize, secret)...)
		texts.Ops = append(texts.Ops, Op{Text: at + 20, Len: uint32(size), AAD: at, AADLen: 20, Nonce: [16]byte{byte(i)}})
	}
	c, memory := NewCPU(), bytes.Clone(texts.Mem)
	return func() {
		keys.Store(0) // an id is public
		k, err := NewKey(a, key)
		if err != nil {
			panic(err)
		}
		copy(texts.Mem, memory)
		texts.Keys = append(texts.Keys[:0], k)
		if c.Seal(&texts) != len(texts.Ops) || c.Open(&texts) != len(texts.Ops) {
			panic("not opened")
		}
	}
}

// TestBranchesDependOnNoSecret: that a tag is right is public, and here all are.
func TestBranchesDependOnNoSecret(t *testing.T) {
	secrets := 2
	if os.Getenv(consttime.TimingEnv) != "" { // this takes longer
		secrets = 4
	}
	for _, a := range secretive {
		if NewCPU().Form(a) == FormStandard {
			t.Logf("this CPU has no form of the package's own for %v", a)
			continue
		}
		within := []string{"github.com/millrace/millrace/gpukern/aead."}
		consttime.Branches(t, a.String(), secrets, within, nil, []string{".multiply", ".chachaLanes"})
	}
}

// TestTimeDependsOnNoSecret compares one key and text with others.
func TestTimeDependsOnNoSecret(t *testing.T) {
	for _, a := range secretive {
		if NewCPU().Form(a) == FormStandard {
			t.Logf("this CPU has no form of the package's own for %v", a)
			continue
		}
		var runs [2][64]func()
		for i := range 64 {
			runs[0][i], runs[1][i] = sealing(a, 0), sealing(a, 2+i)
		}
		var run func()
		consttime.Timing(t, func(class int) { run = runs[class][mathrand.IntN(64)] }, func() { run() })
	}
}
