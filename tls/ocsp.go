package tls

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"golang.org/x/crypto/ocsp"
)

// Errors of OCSP responses.
var (
	// ErrNoResponder reports that a certificate names no OCSP responder, or has no issuer in its chain.
	ErrNoResponder = errors.New("tls: no OCSP responder")
	// ErrBadResponse reports that a response is malformed, of the wrong responder or too large.
	ErrBadResponse = errors.New("tls: bad OCSP response")
	// ErrStaleResponse reports that a response is not valid now, or not for a bounded time.
	ErrStaleResponse = errors.New("tls: OCSP response is not current")
	// ErrStatusUnknown reports that the responder does not know the certificate.
	ErrStatusUnknown = errors.New("tls: OCSP responder does not know the certificate")
)

const (
	maxResponse  = 64 << 10            // bytes of an OCSP response; those of public authorities have 500
	maxStapleAge = 14 * 24 * time.Hour // of a response, however long it claims to be valid
	clockSkew    = 5 * time.Minute     // by which a responder's clock may be ahead
)

// oidTLSFeature is the extension TLS Feature; the value 5 in it is status_request (RFC 7633 4).
var oidTLSFeature = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 24}

// hasMustStaple reports whether a certificate demands a stapled response.
func hasMustStaple(leaf *x509.Certificate) bool {
	for _, e := range leaf.Extensions {
		if !e.Id.Equal(oidTLSFeature) {
			continue
		}
		var features []int
		rest, err := asn1.Unmarshal(e.Value, &features)
		return err == nil && len(rest) == 0 && slices.Contains(features, 5)
	}
	return false
}

// validity is the time of a response that says "good".
type validity struct{ from, until time.Time }

// checkResponse verifies an OCSP response for leaf (RFC 6960 3.2). Only one that says that the
// certificate is good, now and until a time that it names, is no error.
func checkResponse(response []byte, leaf, issuer *x509.Certificate, now time.Time) (validity, error) {
	if len(response) > maxResponse {
		return validity{}, fmt.Errorf("%w: more than %d bytes", ErrBadResponse, maxResponse)
	}
	r, err := ocsp.ParseResponseForCert(response, leaf, issuer)
	if err != nil {
		return validity{}, fmt.Errorf("%w: %w", ErrBadResponse, err)
	}
	if err := checkResponder(r.Certificate, issuer, now); err != nil {
		return validity{}, err
	}
	v := validity{r.ThisUpdate, r.NextUpdate}
	if limit := r.ThisUpdate.Add(maxStapleAge); v.until.After(limit) {
		v.until = limit
	}
	switch {
	case r.NextUpdate.IsZero(): // newer information is available at any time (RFC 6960 2.4)
		return v, fmt.Errorf("%w: it has no nextUpdate", ErrStaleResponse)
	case now.Add(clockSkew).Before(r.ThisUpdate):
		return v, fmt.Errorf("%w: it begins on %v", ErrStaleResponse, r.ThisUpdate)
	case !now.Before(v.until):
		return v, fmt.Errorf("%w: it ended on %v", ErrStaleResponse, v.until)
	}
	switch r.Status {
	case ocsp.Good:
		return v, nil
	case ocsp.Revoked:
		why := fmt.Errorf("by OCSP, on %v, reason %d", r.RevokedAt, r.RevocationReason)
		return v, &VerifyError{Reason: ErrRevoked, Certificate: leaf, Err: why}
	}
	return v, ErrStatusUnknown
}

// checkResponder checks a responder that is not the issuer itself: the issuer has signed its
// certificate, which package ocsp verifies, and has made it a responder (RFC 6960 4.2.2.2).
func checkResponder(responder, issuer *x509.Certificate, now time.Time) error {
	switch {
	case responder == nil || responder.Equal(issuer):
		return nil
	case !slices.Contains(responder.ExtKeyUsage, x509.ExtKeyUsageOCSPSigning):
		return fmt.Errorf("%w: the responder %v is not authorized", ErrBadResponse, responder.Subject)
	case now.After(responder.NotAfter) || now.Before(responder.NotBefore):
		return fmt.Errorf("%w: the certificate of the responder %v is not valid now", ErrBadResponse, responder.Subject)
	}
	return nil
}

// fetchResponse asks the responders of a certificate one after another (RFC 6960 A.1).
func fetchResponse(
	ctx context.Context, client *http.Client, leaf, issuer *x509.Certificate, now time.Time,
) ([]byte, validity, error) {
	// SHA-1 names the issuer, nothing more, and is what all responders know (RFC 5019 2.1.1).
	request, err := ocsp.CreateRequest(leaf, issuer, &ocsp.RequestOptions{Hash: crypto.SHA1})
	if err != nil {
		return nil, validity{}, err
	}
	var errs []error
	for _, url := range leaf.OCSPServer {
		response, err := postRequest(ctx, client, url, request)
		if err == nil {
			var v validity
			if v, err = checkResponse(response, leaf, issuer, now); err == nil {
				return response, v, nil
			}
		}
		errs = append(errs, fmt.Errorf("%s: %w", url, err))
	}
	if len(errs) == 0 {
		return nil, validity{}, ErrNoResponder
	}
	return nil, validity{}, errors.Join(errs...)
}

// postRequest makes one request. The response is bounded, whatever its length says.
func postRequest(ctx context.Context, client *http.Client, url string, request []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(request))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/ocsp-request")
	r.Header.Set("Accept", "application/ocsp-response")
	resp, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: status %s", ErrBadResponse, resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxResponse+1)) // checkResponse refuses what is longer
}

// CheckStaple checks the OCSP response that a server sent, for use by clients after crypto/tls has
// verified the chain. No response is no error, unless the certificate demands one (RFC 7633 4.2.3.1).
// A response that is not current or not the issuer's is an error too. Resumed sessions were checked when
// they began. NewClientConfig calls it.
func CheckStaple(cs tls.ConnectionState) error {
	if len(cs.PeerCertificates) == 0 || cs.DidResume { // a session keeps the response of its first handshake, which ends
		return nil
	}
	leaf := cs.PeerCertificates[0]
	if len(cs.OCSPResponse) == 0 {
		if hasMustStaple(leaf) {
			return &VerifyError{Reason: ErrNoStaple, Certificate: leaf}
		}
		return nil
	}
	var err error = &VerifyError{Reason: ErrBadChain, Certificate: leaf, Err: errors.New("no verified chain")}
	for _, chain := range cs.VerifiedChains {
		if len(chain) < 2 {
			return nil // the leaf is trusted by itself
		}
		if _, err = checkResponse(cs.OCSPResponse, leaf, chain[1], time.Now()); err == nil {
			return nil
		}
	}
	return err
}
