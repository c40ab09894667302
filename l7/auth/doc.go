// Package auth decides by credentials in a request who makes it.
//
//	Users   names and passwords of an htpasswd file, for Basic (RFC 7617)
//	Tokens  JSON Web Tokens (RFC 7519) signed by keys of a JWKS (RFC 7517), for Bearer (RFC 6750)
//
// Both may be asked on a loop: what takes long, a hash of bcrypt, is computed by goroutines of their own, few at a time, and what they
// have found is remembered. A signature of a token is verified where it is asked for, in 30 to 150 us, and remembered until the token
// expires.
//
// RFCs: 7515 (JWS), 7517 (JWK), 7518 (RS256, ES256), 7519 (JWT), 7617 (Basic), 8037 (EdDSA), 8725 (best practices for JWT).
package auth
