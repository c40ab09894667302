//go:build bogo

package main

import (
	"crypto/tls"
	_ "unsafe" // for go:linkname
)

// supported are the signature algorithms that crypto/tls accepts, where not all of them: its own tests set them too. The
// linker permits that with -checklinkname=0 only, so the file has a build tag.
//
//go:linkname supported crypto/tls.testingOnlySupportedSignatureAlgorithms
var supported []tls.SignatureScheme

func (f *flags) verifiable(*tls.Config) error {
	for _, id := range f.verifyPrefs {
		supported = append(supported, tls.SignatureScheme(id))
	}
	return nil
}
