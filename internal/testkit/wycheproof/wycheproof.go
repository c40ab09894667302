// Package wycheproof reads the test vectors of C2SP/wycheproof (schemas of testvectors_v1), for tests of every back end of an algorithm.
// Files or parts of them are in testdata; MILLRACE_WYCHEPROOF names a folder testvectors_v1 with the whole files.
package wycheproof

import (
	"crypto"
	_ "crypto/sha1" // of Hashes
	_ "crypto/sha256"
	_ "crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/internal/testkit/checkout"
)

// Hex is a field of hexadecimal digits.
type Hex []byte

// UnmarshalText decodes the digits.
func (h *Hex) UnmarshalText(text []byte) (err error) {
	*h, err = hex.DecodeString(string(text))
	return err
}

// Number returns the field as a number.
func (h Hex) Number() *big.Int { return new(big.Int).SetBytes(h) }

// Group has the vectors of one key. Fields that its file lacks are empty.
type Group struct {
	SHA        string
	PublicKey  struct{ PK Hex }
	PrivateKey struct{ Modulus, PrivateExponent, PublicExponent Hex }
	Tests      []Vector
}

// Vector is one test. Result is "valid", "invalid", or "acceptable" where an implementation may do either.
type Vector struct {
	TcID   int
	Result string

	Msg, Sig                Hex // signatures
	Public, Private, Shared Hex // X25519
	Seed, M, EK, C, K       Hex // ML-KEM: a private key, randomness, a public key, a ciphertext, the shared secret
}

// Hashes are those of groups that crypto/rsa signs with.
var Hashes = map[string]crypto.Hash{"SHA-1": crypto.SHA1, "SHA-256": crypto.SHA256, "SHA-384": crypto.SHA384, "SHA-512": crypto.SHA512}

// Groups returns the groups of a file.
func Groups(t testing.TB, name string) []Group {
	t.Helper()
	dir := os.Getenv("MILLRACE_WYCHEPROOF")
	if dir == "" {
		root, err := checkout.Root()
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(root, "internal", "testkit", "wycheproof", "testdata")
	}
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ TestGroups []Group }
	if err := json.Unmarshal(text, &file); err != nil || len(file.TestGroups) == 0 {
		t.Fatalf("%s: %d groups, %v", name, len(file.TestGroups), err)
	}
	return file.TestGroups
}

// Digest returns the digest of the vector's message.
func (v *Vector) Digest(h crypto.Hash) []byte {
	d := h.New()
	d.Write(v.Msg)
	return d.Sum(nil)
}
