"""Calls a model through an auditor with the library of OpenAI."""
import sys

import openai

url, injection, card = sys.argv[1:]
client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)


def chat(text, **options):
    return client.chat.completions.create(model="echo", messages=[{"role": "user", "content": text}], **options)


print(chat("How do rainbows form?").choices[0].message.content)
try:
    chat(injection)
except openai.PermissionDeniedError as error:
    print(error.code)
print("".join(chunk.choices[0].delta.content or "" for chunk in chat(card, stream=True)))
