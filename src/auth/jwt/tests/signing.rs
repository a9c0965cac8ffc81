//! Keys that sign, and the tokens and key sets that are made with them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
    RsaEncoding, RsaKeyPair,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};

/// A key of an issuer, with its private part.
pub(super) enum Signer {
    Es256(EcdsaKeyPair),
    Es384(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
    Rsa(Box<RsaKeyPair>, &'static dyn RsaEncoding, &'static str),
}

pub(super) fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Signer {
    pub(super) fn es256() -> Self {
        let (random, by) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let key = EcdsaKeyPair::generate_pkcs8(by, &random).unwrap();
        Self::Es256(EcdsaKeyPair::from_pkcs8(by, key.as_ref(), &random).unwrap())
    }

    pub(super) fn es384() -> Self {
        let (random, by) = (SystemRandom::new(), &ECDSA_P384_SHA384_FIXED_SIGNING);
        let key = EcdsaKeyPair::generate_pkcs8(by, &random).unwrap();
        Self::Es384(EcdsaKeyPair::from_pkcs8(by, key.as_ref(), &random).unwrap())
    }

    pub(super) fn ed25519() -> Self {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::Ed(Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap())
    }

    /// ring makes no RSA keys: this one was made for tests, and is used for nothing else.
    pub(super) fn rsa(algorithm: &'static str) -> Self {
        let encoding: &dyn RsaEncoding = match algorithm {
            "RS256" => &ring::signature::RSA_PKCS1_SHA256,
            "RS384" => &ring::signature::RSA_PKCS1_SHA384,
            "RS512" => &ring::signature::RSA_PKCS1_SHA512,
            "PS256" => &ring::signature::RSA_PSS_SHA256,
            "PS384" => &ring::signature::RSA_PSS_SHA384,
            "PS512" => &ring::signature::RSA_PSS_SHA512,
            other => panic!("no RSA algorithm: {other}"),
        };
        let pem = include_bytes!("../../../../tests/keys/rsa-2048-for-tests-only.pem");
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem).unwrap();
        Self::Rsa(Box::new(RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).unwrap()), encoding, algorithm)
    }

    pub(super) fn algorithm(&self) -> &'static str {
        match self {
            Self::Es256(_) => "ES256",
            Self::Es384(_) => "ES384",
            Self::Ed(_) => "EdDSA",
            Self::Rsa(_, _, algorithm) => algorithm,
        }
    }

    /// The public key as it is, for those who would sign with it.
    pub(super) fn public(&self) -> &[u8] {
        match self {
            Self::Es256(key) | Self::Es384(key) => key.public_key().as_ref(),
            Self::Ed(key) => key.public_key().as_ref(),
            Self::Rsa(key, ..) => key.public_key().as_ref(),
        }
    }

    /// The public key as a JWK.
    pub(super) fn jwk(&self, kid: &str) -> Value {
        let public = self.public();
        let mut jwk = match self {
            Self::Es256(_) | Self::Es384(_) => {
                let (x, y) = public[1..].split_at(public.len() / 2);
                json!({ "kty": "EC", "crv": if public.len() == 65 { "P-256" } else { "P-384" },
                    "x": base64(x), "y": base64(y) })
            }
            Self::Ed(_) => json!({ "kty": "OKP", "crv": "Ed25519", "x": base64(public) }),
            Self::Rsa(key, ..) => {
                let PublicKeyComponents { n, e } = PublicKeyComponents::<Vec<u8>>::from(key.public());
                json!({ "kty": "RSA", "n": base64(n), "e": base64(e) })
            }
        };
        jwk["alg"] = self.algorithm().into();
        jwk["use"] = "sig".into();
        jwk["kid"] = kid.into();
        jwk
    }

    pub(super) fn signature(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Es256(key) | Self::Es384(key) => key.sign(&random, message).unwrap().as_ref().to_vec(),
            Self::Ed(key) => key.sign(message).as_ref().to_vec(),
            Self::Rsa(key, encoding, _) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(*encoding, &random, message, &mut signature).unwrap();
                signature
            }
        }
    }

    /// A token with the header and claims that are wanted.
    pub(super) fn sign_with(&self, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", base64(header.to_string()), base64(claims.to_string()));
        format!("{signed}.{}", base64(self.signature(signed.as_bytes())))
    }

    /// A token with this key's algorithm and id.
    pub(super) fn sign(&self, kid: &str, claims: &Value) -> String {
        self.sign_with(&json!({ "alg": self.algorithm(), "kid": kid, "typ": "JWT" }), claims)
    }
}

/// A set of keys.
pub(super) fn jwks(keys: &[Value]) -> String {
    json!({ "keys": keys }).to_string()
}
