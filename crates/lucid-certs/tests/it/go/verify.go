// Reads vectors as JSON and prints Go's verdict about each: "ok", or the reason on one line.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
)

type vector struct {
	CA, Chain, Key []byte
	Name           string
}

func main() {
	decoder := json.NewDecoder(os.Stdin)
	for decoder.More() {
		var found vector
		if err := decoder.Decode(&found); err != nil {
			panic(err)
		}
		if err := found.verify(); err != nil {
			fmt.Println(strings.Join(strings.Fields(err.Error()), " "))
		} else {
			fmt.Println("ok")
		}
	}
}

// Accepts what crypto/tls accepts with a pool of which no certificate was skipped.
func (v vector) verify() error {
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(v.CA)
	count := 0
	for block, rest := pem.Decode(v.CA); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			continue
		}
		count++
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return err
		}
	}
	if bytes.Count(v.CA, []byte("CERTIFICATE-----")) != 2*count {
		return errors.New("a section of the bundle is lost")
	}
	pair, err := tls.X509KeyPair(v.Chain, v.Key)
	if err != nil {
		return err
	}
	if bytes.Count(v.Chain, []byte("CERTIFICATE-----")) != 2*len(pair.Certificate) {
		return errors.New("a section of the chain is lost")
	}
	for _, der := range pair.Certificate[1:] {
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		intermediates.AddCert(certificate)
	}
	_, err = pair.Leaf.Verify(x509.VerifyOptions{DNSName: v.Name, Roots: roots, Intermediates: intermediates})
	return err
}
