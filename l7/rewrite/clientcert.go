package rewrite

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"net/url"
	"strings"

	"github.com/millrace/millrace/semantics"
)

// ClientCert configures how backends learn of the certificate that a client has shown, and that the handshake has verified. Fields
// of these names that a client sends are removed in any case, unless the listener trusts it.
type ClientCert struct {
	Style CertStyle
	// Chain adds the certificates between the client's and the authority, which it ends with.
	Chain bool
}

// CertStyle is a form of ClientCert.
type CertStyle uint8

// Values of CertStyle.
const (
	NoCert      CertStyle = iota
	CertRFC9440           // Client-Cert, and Client-Cert-Chain
	CertXFCC              // X-Forwarded-Client-Cert: Hash, Subject, URI and DNS; with Chain Cert and Chain too
)

// IsCertName reports whether a field of a name describes a client's certificate, in either style: a backend may read one that the gateway
// does not set.
func IsCertName(name string) bool {
	switch len(name) { // most names have another length, and no string is compared
	case len("client-cert"):
		return name == "client-cert"
	case len("client-cert-chain"):
		return name == "client-cert-chain"
	case len("x-forwarded-client-cert"):
		return name == "x-forwarded-client-cert"
	}
	return false
}

// Fields returns the fields for a verified chain, which begins with the client's certificate. They are made once for a
// connection: its certificate does not change, as servers of crypto/tls permit no renegotiation.
func (o ClientCert) Fields(chain []*x509.Certificate) []semantics.Field {
	switch o.Style {
	case CertRFC9440:
		list := []semantics.Field{{Name: "client-cert", Value: byteSequence(chain[0])}}
		if o.Chain && len(chain) > 1 {
			var all []string
			for _, c := range chain[1:] {
				all = append(all, byteSequence(c))
			}
			list = append(list, semantics.Field{Name: "client-cert-chain", Value: strings.Join(all, ", ")})
		}
		return list
	case CertXFCC:
		return []semantics.Field{{Name: "x-forwarded-client-cert", Value: o.element(chain)}}
	}
	return nil
}

// byteSequence is a certificate as a byte sequence of a structured field (RFC 9440 2.1, RFC 8941 3.3.5): the DER form
// in base64, between colons.
func byteSequence(c *x509.Certificate) string {
	return ":" + base64.StdEncoding.EncodeToString(c.Raw) + ":"
}

// element is an element of X-Forwarded-Client-Cert: pairs of a key and a value, as Envoy writes them. No RFC defines
// the field; servers that read it follow Envoy. Chain includes the client's certificate, which Cert has as well.
func (o ClientCert) element(chain []*x509.Certificate) string {
	leaf := chain[0]
	sum := sha256.Sum256(leaf.Raw)
	pairs := []string{"Hash=" + hex.EncodeToString(sum[:])}
	if o.Chain {
		all := inPEM(leaf)
		pairs = append(pairs, `Cert="`+all+`"`)
		for _, c := range chain[1:] {
			all += inPEM(c)
		}
		pairs = append(pairs, `Chain="`+all+`"`)
	}
	pairs = appendPair(pairs, "Subject", leaf.Subject.String(), true)
	for _, u := range leaf.URIs {
		pairs = appendPair(pairs, "URI", u.String(), false)
	}
	for _, name := range leaf.DNSNames {
		pairs = appendPair(pairs, "DNS", name, false)
	}
	return strings.Join(pairs, ";")
}

// appendPair appends a pair. What a certificate says may be any text: what is no visible ASCII is left out, since it could
// end the field or hide in it.
func appendPair(pairs []string, key, value string, always bool) []string {
	for i := range len(value) {
		if value[i] < ' ' || value[i] > '~' {
			return pairs
		}
	}
	if always || strings.ContainsAny(value, `,;="`) {
		value = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
	}
	return append(pairs, key+"="+value)
}

// inPEM is a certificate in PEM, encoded for a URL. A space is %20 rather than +, which decoders of Envoy's form leave as it is.
func inPEM(c *x509.Certificate) string {
	return strings.ReplaceAll(url.QueryEscape(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))), "+", "%20")
}
