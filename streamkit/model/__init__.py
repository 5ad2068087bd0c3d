"""The nouns: plain frozen data that every other package speaks.

records         records signal commit varint
time            event_time duration
identifiers     ids keys broker_address
topics          topic topic_name topic_shape topic_file
user input      by_hand
reports         finding counts
"""
