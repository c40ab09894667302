package wycheproof

import (
	"crypto"
	"encoding/hex"
	"testing"
)

func TestTheVectorsAreRead(t *testing.T) {
	for name, least := range map[string]int{
		"x25519_test.json": 518, "ed25519_test.json": 151, "mlkem_768_test.json": 47, "mlkem_768_encaps_test.json": 35,
		"rsa_pkcs1_2048_sig_gen_test.json": 18, "rsa_pkcs1_3072_sig_gen_test.json": 8, "rsa_pkcs1_4096_sig_gen_test.json": 6,
	} {
		vectors := 0
		for _, g := range Groups(t, name) {
			vectors += len(g.Tests)
			for _, v := range g.Tests {
				if v.Result != "valid" && v.Result != "invalid" && v.Result != "acceptable" {
					t.Errorf("%s: test %d is %q", name, v.TcID, v.Result)
				}
			}
		}
		if vectors < least {
			t.Errorf("%s: %d vectors, want %d", name, vectors, least)
		}
	}
	v := Groups(t, "x25519_test.json")[0].Tests[0]
	if got := hex.EncodeToString(v.Private); got != "c8a9d5a91091ad851c668b0736c1c9a02936c0d3ad62670858088047ba057475" {
		t.Errorf("the first private key is %s", got)
	}
	if got := hex.EncodeToString((&Vector{Msg: Hex("abc")}).Digest(crypto.SHA1)); got != "a9993e364706816aba3e25717850c26c9cd0d89d" {
		t.Errorf("SHA-1 of abc is %s", got)
	}
}
