package tls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"time"
)

// Reasons for which a certificate is refused, for errors.Is on what Diagnose returns.
var (
	ErrExpired           = errors.New("tls: certificate has expired")
	ErrNotYetValid       = errors.New("tls: certificate is not valid yet")
	ErrWrongName         = errors.New("tls: certificate is for other names")
	ErrUnknownCA         = errors.New("tls: certificate is signed by an unknown authority")
	ErrNameConstraints   = errors.New("tls: authority may not issue certificates for this name")
	ErrWrongUse          = errors.New("tls: certificate is not for this use")
	ErrRevoked           = errors.New("tls: certificate is revoked")
	ErrRevocationUnknown = errors.New("tls: no current revocation list covers the certificate")
	ErrBadChain          = errors.New("tls: certificate chain is invalid")
	ErrNoStaple          = errors.New("tls: certificate demands a stapled OCSP response, and there is none")
)

// VerifyError describes why a certificate was rejected.
type VerifyError struct {
	Reason      error             // one of the sentinels of this package
	Certificate *x509.Certificate // the one at fault; nil if it is not known
	Err         error             // the error of crypto/x509 or crypto/tls; may be nil
}

// Error returns the reason, the certificate and the details.
func (e *VerifyError) Error() string {
	s := e.Reason.Error()
	if e.Certificate != nil {
		s += ": " + e.Certificate.Subject.String()
		if e.Reason == ErrExpired {
			s += " on " + e.Certificate.NotAfter.Format(time.RFC3339)
		}
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the reason and the error below.
func (e *VerifyError) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Reason}
	}
	return []error{e.Reason, e.Err}
}

// Diagnose returns a *VerifyError if err, which may be that of a handshake, is about a certificate
// that was refused, and err itself otherwise.
func Diagnose(err error) error {
	var known *VerifyError
	if err == nil || errors.As(err, &known) {
		return err
	}
	var chain *tls.CertificateVerificationError
	var leaf *x509.Certificate
	if errors.As(err, &chain) && len(chain.UnverifiedCertificates) > 0 {
		leaf = chain.UnverifiedCertificates[0]
	}
	var invalid x509.CertificateInvalidError
	var name x509.HostnameError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &invalid):
		return &VerifyError{reasonOf(invalid), invalid.Cert, err}
	case errors.As(err, &name):
		return &VerifyError{ErrWrongName, name.Certificate, err}
	case errors.As(err, &unknown):
		if unknown.Cert != nil {
			leaf = unknown.Cert
		}
		return &VerifyError{ErrUnknownCA, leaf, err}
	case chain != nil:
		return &VerifyError{ErrBadChain, leaf, err}
	}
	return err
}

// reasonOf returns the reason of an invalid certificate.
func reasonOf(e x509.CertificateInvalidError) error {
	switch e.Reason {
	case x509.Expired: // also of certificates from the future
		if e.Cert != nil && time.Now().Before(e.Cert.NotBefore) {
			return ErrNotYetValid
		}
		return ErrExpired
	case x509.CANotAuthorizedForThisName, x509.TooManyConstraints, x509.UnconstrainedName, x509.NameConstraintsWithoutSANs:
		return ErrNameConstraints
	case x509.IncompatibleUsage, x509.CANotAuthorizedForExtKeyUsage:
		return ErrWrongUse
	}
	return ErrBadChain
}
