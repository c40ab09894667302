package cavp

import (
	"bytes"
	"crypto/sha256"
	"strconv"
	"testing"
)

func TestTheVectorsAreRead(t *testing.T) {
	for name, fields := range map[string][]string{
		"gcmEncryptExtIV128.rsp": {"IVlen", "Taglen", "Key", "IV", "Tag"}, "gcmEncryptExtIV256.rsp": {"Keylen", "Key", "Tag"},
		"gcmDecrypt128.rsp": {"Key", "CT", "Tag"}, "gcmDecrypt256.rsp": {"Key", "CT", "Tag"}, "HMAC.rsp": {"L", "Key", "Msg", "Mac", "Tlen"},
		"SHA256ShortMsg.rsp": {"L", "Len", "Msg", "MD"}, "SHA256LongMsg.rsp": {"Len", "MD"},
		"SigGen15_186-3.txt": {"mod", "n", "e", "d", "SHAAlg", "Msg", "S"}, "SigGen.txt": {"section", "Msg", "d", "Qx", "Qy", "R", "S"},
		"SigVer15_186-3.rsp": {"mod", "n", "e", "SHAAlg", "Msg", "S", "Result"}, "SigVer.rsp": {"section", "Msg", "Qx", "Qy", "R", "S", "Result"},
		"SigVerPSS_186-3.rsp": {"mod", "n", "e", "SHAAlg", "Msg", "S", "SaltVal", "Result"},
	} {
		all := Records(t, name)
		for i, r := range all {
			for _, f := range fields {
				if _, has := r[f]; !has {
					t.Errorf("%s: vector %d has no %s: %v", name, i, f, r)
				}
			}
		}
	}
	for _, r := range Records(t, "SHA256ShortMsg.rsp") { // that fields belong together
		n, _ := strconv.Atoi(r["Len"])
		if sum := sha256.Sum256(r.Bytes(t, "Msg")[:n/8]); !bytes.Equal(sum[:], r.Bytes(t, "MD")) {
			t.Errorf("%v", r)
		}
	}
}
